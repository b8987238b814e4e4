"""The cost book: what was observed per cost signature, and what is to be expected of a request in the light of it.

Hot: `blended` of a request whose signature was never observed is one look-up; of one that was, its blend is kept until
the next observation. Owns no clock. Bounded: beyond the capacity the signature that was observed longest ago goes.

Steps are told one by one, added up, or both: of a request's roll-up that part is counted which its own steps did not
tell, so whoever has the steps need not know whether roll-ups will follow. All weights decay with a half-life, so that
an engine's update is believed after a while.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter
from typing import Any

from gateway.hookcost.classification import Classification
from gateway.hookcost.cost import HookCost
from gateway.hookcost.observation import CompileObservation, RollupObservation, StepObservation
from gateway.hookcost.sketch import bucket_of, quantile, upper_bound
from gateway.hookcost.turns import at_once

_HOOK_OF_KIND = {
    "grammar_fill": "grammar",
    "grammar_accept": "grammar",
    "grammar_poll": "grammar",
    "prompt_logprobs": "prefill",
}
"""What the engine's recorder calls a hook, in the words of predictions; the others' names are the same."""
_STEPS_OF_A_PREDICTION = 50.0
"""A prediction weighs as much as so many observed steps."""
_COMPILES_OF_A_PREDICTION = 1.0
"""And as one observed compilation: there is one per grammar, and it is the engine's own figure."""
_NEGLIGIBLE = 0.05
"""Of a step, in a bucket: decayed to so little it is forgotten."""
_TURN_ENTRIES = 1000
"""Looked at in about a millisecond."""
_FOLLOWED = 10_000
"""Requests between two roll-ups; beyond it the oldest one's next roll-up is counted in full."""


@dataclass(slots=True)
class CostEntry:
    """What was observed of one signature. Weights are numbers of steps and compilations, decayed.

    max_us:      the dearest step whose weight is not negligible yet.
    last_seen_s: clock reading.
    predicted:   what was predicted for the newest request; `blend` is that, corrected, or None if it has to be made.
    by_kind:     µs by the engine's kinds of hooks, together `sum_us` where the engine tells of all.
    """

    signature: str
    last_seen_s: float
    steps: float = 0.0
    sum_us: float = 0.0
    max_us: float = 0.0
    buckets: dict[int, float] = field(default_factory=dict)
    by_kind: dict[str, float] = field(default_factory=dict)
    compiles: float = 0.0
    compile_sum_ms: float = 0.0
    compile_max_ms: float = 0.0
    decayed_s: float = 0.0
    predicted: HookCost | None = None
    blend: HookCost | None = None

    @property
    def mean_us(self) -> float:
        """µs of a step, all sequences of a request together; 0 before any was seen."""
        return min(self.sum_us / self.steps, self.max_us) if self.steps > 0.0 else 0.0

    @property
    def p95_us(self) -> float:
        """95 of 100 steps take less, within 9 %."""
        return min(quantile(self.buckets.items(), 0.95), self.max_us)

    @property
    def compile_mean_ms(self) -> float:
        """Of one compilation; 0 before any was seen."""
        return min(self.compile_sum_ms / self.compiles, self.compile_max_ms) if self.compiles > 0.0 else 0.0

    @property
    def confidence(self) -> float:
        """How far the observed step cost is believed against the prediction: 0 to 1."""
        return self.steps / (self.steps + _STEPS_OF_A_PREDICTION)

    def document(self) -> dict[str, Any]:
        """For people and programs."""
        return {
            "signature": self.signature,
            "steps": round(self.steps, 1),
            "mean_us": round(self.mean_us, 1),
            "p95_us": round(self.p95_us, 1),
            "max_us": round(self.max_us, 1),
            "by_kind": {kind: round(us / self.steps, 1) for kind, us in self.by_kind.items()} if self.steps else {},
            "compiles": round(self.compiles, 1),
            "compile_mean_ms": round(self.compile_mean_ms, 2),
            "compile_max_ms": round(self.compile_max_ms, 2),
            "confidence": round(self.confidence, 3),
            "last_seen_s": self.last_seen_s,
        }


class CostBook:
    """Observed cost by signature.

    capacity:    signatures that are kept.
    half_life_s: after which an observation weighs half.
    """

    def __init__(self, clock: Callable[[], float], capacity: int = 100_000, half_life_s: float = 6 * 3600.0) -> None:
        self._clock = clock
        self._capacity = capacity
        self._half_life_s = half_life_s
        self._entries: OrderedDict[str, CostEntry] = OrderedDict()
        """The one that was observed longest ago first."""
        self._changes: dict[str, dict[str, float]] = {}
        self._told: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Steps and µs of running requests since their last roll-up."""

    def __len__(self) -> int:
        return len(self._entries)

    def blended(self, classification: Classification) -> HookCost:
        """The cost to reckon with: the prediction, corrected by what was observed, the more so the more was."""
        entry = self._entries.get(classification.signature)
        if entry is None:
            return classification.cost
        if entry.predicted is classification.cost and entry.blend is not None:
            return entry.blend
        entry.predicted = classification.cost
        entry.blend = blend = _blend(classification.cost, entry)
        return blend

    def observe_step(self, observation: StepObservation) -> None:
        """One request's part of one step."""
        origin = observation.origin
        self._add_steps(origin.signature, 1, observation.own_us, observation.own_us, observation.kinds)
        steps, us = self._told.pop(origin.request_id, (0, 0.0))
        self._told[origin.request_id] = (steps + 1, us + observation.own_us)
        if len(self._told) > _FOLLOWED:
            self._told.popitem(last=False)

    def observe_rollup(self, observation: RollupObservation) -> None:
        """What a request's steps since its last roll-up add up to; those that were told one by one count once."""
        origin = observation.origin
        steps, us = self._told.pop(origin.request_id, (0, 0.0))
        left, left_us = observation.steps - steps, max(0.0, observation.sum_us - us)
        if left <= 0:
            return
        # Which of the kinds were told already is not known: the rest is like the whole.
        share = left_us / observation.sum_us if observation.sum_us > 0.0 else 0.0
        kinds = {kind: kind_us * share for kind, kind_us in observation.kinds.items()}
        # The dearest is among those that were told, if any were.
        largest_us = observation.max_us if steps == 0 else left_us / left
        self._add_steps(origin.signature, left, left_us, largest_us, kinds)

    def observe_compile(self, observation: CompileObservation) -> None:
        """One compilation of a grammar; one that failed took its time, too."""
        entry = self._entry(observation.origin.signature)
        entry.compiles += 1.0
        entry.compile_sum_ms += observation.compile_ms
        entry.compile_max_ms = max(entry.compile_max_ms, observation.compile_ms)
        changes = self._changes.setdefault(entry.signature, {})
        _add(changes, "c", 1.0)
        _add(changes, "c_ms", observation.compile_ms)
        _add(changes, f"cb{bucket_of(observation.compile_ms * 1e3)}", 1.0)

    def entry(self, signature: str) -> CostEntry | None:
        """What was observed of a signature, if anything."""
        return self._entries.get(signature)

    def top(self, count: int) -> list[CostEntry]:
        """The dearest by mean step, dearest first."""
        return at_once(self.top_in_turns(count))

    def top_in_turns(self, count: int) -> Generator[None, None, list[CostEntry]]:
        """The same in turns, for a caller that has an event loop to share."""
        entries = list(self._entries.values())
        found: list[CostEntry] = []
        for at in range(0, len(entries), _TURN_ENTRIES):
            found = nlargest(count, [*found, *entries[at : at + _TURN_ENTRIES]], key=attrgetter("mean_us"))
            yield
        return found

    def export(self) -> dict[str, dict[str, float]]:
        """What this book itself has observed since the last export: numbers by name, by signature. They may be added.

        `n`, `us`: steps and their µs; `b7`: steps in bucket 7; `k.stop`: µs of a kind; `c`, `c_ms`, `cb40`: the same of
        compilations, whose buckets are of µs, too.
        """
        changes, self._changes = self._changes, {}
        return changes

    def merge(self, signature: str, amounts: Mapping[str, float]) -> None:
        """Add what other books have exported, one or the sum of several. Never one's own: it is in here already."""
        entry = self._entry(signature)
        entry.steps += amounts.get("n", 0.0)
        entry.sum_us += amounts.get("us", 0.0)
        entry.compiles += amounts.get("c", 0.0)
        entry.compile_sum_ms += amounts.get("c_ms", 0.0)
        for name, amount in amounts.items():
            if name.startswith("k."):
                _add(entry.by_kind, name[2:], amount)
            elif name.startswith("cb"):
                entry.compile_max_ms = max(entry.compile_max_ms, upper_bound(int(name[2:])) / 1e3)
            elif name.startswith("b"):
                bucket = int(name[1:])
                entry.buckets[bucket] = entry.buckets.get(bucket, 0.0) + amount
                entry.max_us = max(entry.max_us, upper_bound(bucket))

    def age(self) -> int:
        """Forget signatures of which decay has left less than half a step, and say how many; call it each minute."""
        now_s = self._clock()
        gone = 0
        for entry in self._stale(now_s):
            del self._entries[entry.signature]
            gone += 1
        return gone

    def _stale(self, now_s: float) -> Iterator[CostEntry]:
        entries = self._entries
        while entries:
            entry = next(iter(entries.values()))
            weight = max(entry.steps, entry.compiles) * self._decay(now_s - entry.last_seen_s)
            if weight >= 0.5:
                return
            yield entry

    def _add_steps(
        self, signature: str, steps: int, sum_us: float, largest_us: float, kinds: Mapping[str, float]
    ) -> None:
        entry = self._entry(signature)
        changes = self._changes.get(signature)
        if changes is None:
            changes = self._changes[signature] = {}
        entry.steps += steps
        entry.sum_us += sum_us
        entry.max_us = max(entry.max_us, largest_us)
        _add(changes, "n", steps)
        _add(changes, "us", sum_us)
        for bucket, count in _buckets(steps, sum_us, largest_us):
            entry.buckets[bucket] = entry.buckets.get(bucket, 0.0) + count
            _add(changes, f"b{bucket}", count)
        for kind, us in kinds.items():
            _add(entry.by_kind, kind, us)
            _add(changes, f"k.{kind}", us)

    def _entry(self, signature: str) -> CostEntry:
        """The entry to add to: decayed, the newest, its blend forgotten."""
        now_s = self._clock()
        entry = self._entries.get(signature)
        if entry is None:
            entry = self._entries[signature] = CostEntry(signature, now_s, decayed_s=now_s)
            if len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
            return entry
        self._entries.move_to_end(signature)
        if now_s - entry.decayed_s > self._half_life_s / 64.0:
            _shrink(entry, self._decay(now_s - entry.decayed_s))
            entry.decayed_s = now_s
        entry.last_seen_s = now_s
        entry.blend = None
        return entry

    def _decay(self, elapsed_s: float) -> float:
        return float(0.5 ** (elapsed_s / self._half_life_s))


def _buckets(steps: int, sum_us: float, largest_us: float) -> Iterator[tuple[int, float]]:
    """Steps by bucket: the largest, and the others at what they took on average."""
    yield bucket_of(largest_us), 1.0
    if steps > 1:
        yield bucket_of((sum_us - largest_us) / (steps - 1)), steps - 1.0


def _shrink(entry: CostEntry, factor: float) -> None:
    entry.steps *= factor
    entry.sum_us *= factor
    entry.compiles *= factor
    entry.compile_sum_ms *= factor
    entry.by_kind = {kind: us * factor for kind, us in entry.by_kind.items()}
    entry.buckets = {bucket: count * factor for bucket, count in entry.buckets.items() if count * factor > _NEGLIGIBLE}
    highest_us = upper_bound(max(entry.buckets)) if entry.buckets else 0.0
    # What is left of forgotten steps is in the sum, and the mean is never above the maximum.
    entry.max_us = max(min(entry.max_us, highest_us), entry.mean_us)


def _blend(predicted: HookCost, entry: CostEntry) -> HookCost:
    confidence = entry.confidence
    step_us = predicted.step_us + (entry.mean_us - predicted.step_us) * confidence
    compiled = entry.compiles / (entry.compiles + _COMPILES_OF_A_PREDICTION)
    compile_ms = predicted.compile_ms + (entry.compile_mean_ms - predicted.compile_ms) * compiled
    if predicted.step_us > 0.0:
        scale = step_us / predicted.step_us
        by_hook = {hook: us * scale for hook, us in predicted.by_hook.items()}
    else:
        by_hook = {}
        scale = step_us / total if (total := sum(entry.by_kind.values())) > 0.0 else 0.0
        for kind, us in entry.by_kind.items():
            _add(by_hook, _HOOK_OF_KIND.get(kind, kind), us * scale)
    return HookCost(compile_ms, step_us, by_hook, predicted.heavy, predicted.refused, predicted.front_end_us)


def _add(to: dict[str, float], name: str, amount: float) -> None:
    to[name] = to.get(name, 0.0) + amount
