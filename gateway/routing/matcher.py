"""The first of many rules that matches, found without looking at most of them.

A few rules are compiled to one function that looks at each in turn: 30 ns a rule. Of many, those that want certain
words of one variable (a model, a tenant, a kind of grammar) are kept by word, so that only the ones that can match are
looked at, and again among those. The rest is looked at in turn. What is found is the same in any case.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.expression import Numbered, all_of, compile_first_match, compile_least_match
from gateway.routing.knowledge import Knowledge
from gateway.routing.request import RouteRequest
from gateway.routing.rule import CEL, Rule

_FEW = 24
"""So many rules are not worth a look-up."""
_MOST_WORDS = 8
"""A rule that takes more words than this of a variable is not kept by them: it would be compiled for each."""
_GAIN = 0.7
"""A look-up must leave no more than this share of the rules to be looked at."""

_UNIT = 50
"""So many rules make one function: compiling it takes 2 ms, in which a gateway that reloads does nothing else."""

LeastMatch = Callable[[RouteRequest, int], int]
"""The lowest number of a rule that matches, if it is below the limit; else the limit."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A rule that may match, and the conditions that are still to be looked at, by their keys."""

    number: int
    rule: Rule
    done: frozenset[str] = frozenset()

    def words(self, key: str) -> frozenset[object] | None:
        """The words of a variable of which it wants one; None where it can't be kept by them."""
        if key in self.done or not _is_pure(self.rule):
            return None
        for condition in self.rule.conditions:
            accepts = condition.accepts
            if condition.key == key and accepts is not None and accepts.is_exact:
                return accepts.words if len(accepts.words) <= _MOST_WORDS else None
        return None

    def numbered(self) -> Numbered:
        """What is left to look at, as one expression."""
        left = [condition.expression for condition in self.rule.conditions if condition.key not in self.done]
        return Numbered(self.number, all_of(left), alone=not _is_pure(self.rule))


def _is_pure(rule: Rule) -> bool:
    """Whether looking at a rule costs little and leaves no trace, so that it may be done out of turn."""
    return all(condition.key != CEL and condition.peek is None for condition in rule.conditions)


def compile_matcher(rules: Sequence[Rule], knows: Knowledge) -> Callable[[RouteRequest], int]:
    """A function that gives the index of the first rule that matches, or their number where none does."""
    if len(rules) <= _FEW:
        return compile_first_match(
            [all_of([condition.expression for condition in rule.conditions]) for rule in rules], knows
        )
    least = _least_match([_Entry(number, rule) for number, rule in enumerate(rules)], knows)
    none = len(rules)

    def first_match(request: RouteRequest) -> int:
        return least(request, none)

    return first_match


def _least_match(entries: Sequence[_Entry], knows: Knowledge) -> LeastMatch:
    key = _best_key(entries) if len(entries) > _FEW else None
    if key is None:
        numbered = [entry.numbered() for entry in entries]
        units = [compile_least_match(numbered[at : at + _UNIT], knows) for at in range(0, len(numbered), _UNIT)]
        return units[0] if len(units) == 1 else _in_turn(units)
    groups: dict[object, list[_Entry]] = {}
    rest: list[_Entry] = []
    read: Callable[[RouteRequest, Knowledge], object] | None = None
    for entry in entries:
        words = entry.words(key)
        if words is None:
            rest.append(entry)
            continue
        read = read or next(each.actual for each in entry.rule.conditions if each.key == key)
        for word in words:
            groups.setdefault(word, []).append(_Entry(entry.number, entry.rule, entry.done | {key}))
    assert read is not None
    by_word = {word: _least_match(group, knows) for word, group in groups.items()}
    return _look_up(read, by_word, _least_match(rest, knows) if rest else None, knows)


def _in_turn(units: Sequence[LeastMatch]) -> LeastMatch:
    """The first that finds something below the limit: their numbers follow each other."""

    def least_match(request: RouteRequest, limit: int) -> int:
        for unit in units:
            found = unit(request, limit)
            if found < limit:
                return found
        return limit

    return least_match


def _look_up(
    read: Callable[[RouteRequest, Knowledge], object],
    by_word: dict[object, LeastMatch],
    rest: LeastMatch | None,
    knows: Knowledge,
) -> LeastMatch:
    def least_match(request: RouteRequest, limit: int) -> int:
        found = by_word.get(read(request, knows))
        if found is not None:
            limit = found(request, limit)
        return limit if rest is None else rest(request, limit)

    return least_match


def _best_key(entries: Sequence[_Entry]) -> str | None:
    """The variable that leaves the fewest rules to be looked at, if it leaves few enough."""
    best: str | None = None
    fewest = len(entries) * _GAIN
    keys = {condition.key: None for entry in entries for condition in entry.rule.conditions}
    for key in keys:
        kept = 0
        by_word: dict[object, int] = {}
        for entry in entries:
            words = entry.words(key)
            if words is not None:
                kept += 1
                for word in words:
                    by_word[word] = by_word.get(word, 0) + 1
        left = len(entries) - kept + max(by_word.values(), default=0)
        if left < fewest:
            best, fewest = key, left
    return best
