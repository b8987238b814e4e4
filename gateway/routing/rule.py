"""A routing rule: conditions that must all hold, the pools that take the request then, and what is done to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.routing.acceptance import Acceptance
from gateway.routing.actions import Actions, Refuse
from gateway.routing.cel.program import CelProgram, compile_cel
from gateway.routing.conditions import Condition, ConditionError, compile_conditions
from gateway.routing.expression import Expression
from gateway.routing.head import header_reader
from gateway.routing.knowledge import Knowledge
from gateway.routing.request import RouteRequest
from gateway.routing.schedule import Schedule
from gateway.routing.share import Share

CEL = "cel"
TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class Rule:
    """`name` becomes the response header `x-steplane-route`; a rule without conditions takes every request.

    pool:      takes the request; None where `refuse` says the answer.
    cheapest:  pools that compete for it, `pool` the first of them: the one with the cheapest grammar backend takes it.
    fallbacks: stand in for it, in this order, while none of its replicas is available.
    """

    name: str
    pool: str | None
    conditions: tuple[Condition, ...] = ()
    fallbacks: tuple[str, ...] = ()
    actions: Actions | None = None
    refuse: Refuse | None = None
    cheapest: tuple[str, ...] = ()

    @property
    def program(self) -> CelProgram | None:
        """Its condition in CEL, if it has one."""
        found = next((each.expression.constants[0] for each in self.conditions if each.key == CEL), None)
        return found if isinstance(found, CelProgram) else None

    def takes_all_of(self, other: "Rule") -> bool:
        """Whether every request that `other` takes is taken here for sure; false where that can't be told.

        Asked of each pair of rules when a configuration is checked, so for 500 rules 125,000 times.
        """
        for mine in self.conditions:
            accepts = mine.accepts
            if accepts is None:
                return False
            for theirs in other.conditions:
                if theirs.key == mine.key and theirs.accepts is not None and accepts.takes(theirs.accepts):
                    break
            else:
                return False
        return True


def compile_rule(
    name: str,
    pool: str | None,
    when: Mapping[str, object] | str,
    *,
    schedule: Schedule | None = None,
    weight: float = 100.0,
    sticky: str | None = None,
    fallbacks: tuple[str, ...] = (),
    actions: Actions | None = None,
    refuse: Refuse | None = None,
    cheapest: tuple[str, ...] = (),
) -> Rule:
    """Build a rule from the `when:` of the YAML, a mapping or an expression in CEL. Raises ConditionError.

    schedule: when it is in force. weight: percent of what matches that it takes. sticky: `tenant`, or the name of a
    header, by which it is always the same ones.
    """
    conditions = compile_when(when)
    if schedule is not None:
        conditions.append(_in_force(schedule))
    # Cheap ones first; the share is one of what matches all the others.
    conditions.sort(key=lambda condition: condition.key == CEL)
    if weight < 100.0:
        conditions.append(_share(name, weight, sticky))
    return Rule(name, pool, tuple(conditions), fallbacks, actions, refuse, cheapest)


def compile_when(when: Mapping[str, object] | str) -> list[Condition]:
    """The conditions of a `when:`. Raises ConditionError."""
    if isinstance(when, str):
        return [_cel(when)]
    conditions = list(compile_conditions({key: wanted for key, wanted in when.items() if key != CEL}))
    if CEL in when:
        conditions.append(_cel(when[CEL]))
    return conditions


def _cel(source: object) -> Condition:
    if not isinstance(source, str) or not source.strip():
        raise ConditionError(CEL, "an expression in CEL", source)
    program = compile_cel(source)
    accepts = Acceptance(frozenset((source,)))
    return Condition(CEL, source, Expression("{0}(request, knows)", (program,)), program.seen, accepts)


def _in_force(schedule: Schedule) -> Condition:
    def now(request: RouteRequest, knows: Knowledge) -> object:  # noqa: ARG001
        return "in force" if schedule() else "not in force"

    accepts = Acceptance(frozenset((schedule.hours,)))
    return Condition("schedule", "in force", Expression("{0}()", (schedule,)), now, accepts)


def _share(name: str, weight: float, sticky: str | None) -> Condition:
    share = Share(name, weight, _stickiness(sticky))
    by = f", by {sticky}" if sticky else ""

    def place(request: RouteRequest, knows: Knowledge) -> object:  # noqa: ARG001
        return share.place(request)

    return Condition("weight", f"{weight:g} %{by}", Expression("{0}(request)", (share,)), place, peek=share.peek)


def _stickiness(sticky: str | None) -> Callable[[RouteRequest], str | None] | None:
    if sticky is None:
        return None
    if sticky == TENANT:
        return lambda request: request.tenant
    read = header_reader(sticky)
    return lambda request: read(request.head)
