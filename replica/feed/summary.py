"""What all records since the engine's start come to: histograms, top offenders, recent offences with their stacks."""

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from replica.feed.document import document
from replica.feed.histogram import Histogram
from replica.recorder.records import CompileRecord, HookKind, Note, Offence, Record, StepRecord

_REQUESTS_REMEMBERED = 2048
_OFFENCES_REMEMBERED = 100
_NOTES_REMEMBERED = 50
_TOP = 20


@dataclass(slots=True)
class _Tally:
    """One request's hooks, over all its steps."""

    steps: int = 0
    own_us: float = 0.0
    worst_us: float = 0.0
    kinds: Counter[HookKind] = field(default_factory=Counter)

    def document(self, rid: str) -> dict[str, Any]:
        return {
            "rid": rid,
            "steps": self.steps,
            "own_us": round(self.own_us, 1),
            "mean_us": round(self.own_us / self.steps, 1),
            "worst_us": round(self.worst_us, 1),
            "kinds": {kind: round(us, 1) for kind, us in self.kinds.most_common()},
        }


@dataclass(slots=True)
class Summary:
    """Fed with every record in order; all state is bounded."""

    step: Histogram = field(default_factory=Histogram)
    forward: Histogram = field(default_factory=Histogram)
    hook: Histogram = field(default_factory=Histogram)
    itl: Histogram = field(default_factory=Histogram)
    compile: Histogram = field(default_factory=Histogram)
    lost: int = 0
    _kinds: Counter[HookKind] = field(default_factory=Counter)
    _modes: Counter[str] = field(default_factory=Counter)
    _requests: OrderedDict[str, _Tally] = field(default_factory=OrderedDict)
    _offences: deque[Offence] = field(default_factory=lambda: deque(maxlen=_OFFENCES_REMEMBERED))
    _notes: deque[Note] = field(default_factory=lambda: deque(maxlen=_NOTES_REMEMBERED))
    _limits: Counter[str] = field(default_factory=Counter)
    _compile_errors: int = 0
    _decoded_s: float | None = None

    def add(self, record: Record) -> None:
        """Take one record in."""
        match record:
            case StepRecord():
                self._add_step(record)
            case Offence():
                self._offences.append(record)
                self._limits[record.limit] += 1
            case CompileRecord():
                self.compile.add(record.ms * 1e3)
                self._compile_errors += record.error is not None
            case Note():
                self._notes.append(record)

    def document(self) -> dict[str, Any]:
        """`GET /summary`. `itl`: the gap before each token of each decoding sequence; the others: every step."""
        top = sorted(self._requests.items(), key=lambda item: item[1].own_us, reverse=True)[:_TOP]
        return {
            "lost": self.lost,
            "modes": dict(self._modes),
            "step": self.step.document(),
            "forward": self.forward.document(),
            "hook": self.hook.document(),
            "itl": self.itl.document(),
            "compile": self.compile.document() | {"errors": self._compile_errors},
            "kinds_us": {kind: round(us, 1) for kind, us in self._kinds.most_common()},
            "offences": dict(self._limits),
            "offenders": [tally.document(rid) for rid, tally in top],
            "notes": [note.text for note in self._notes],
        }

    def stacks(self, unix_offset_s: float) -> list[dict[str, Any]]:
        """`GET /stacks`: recent offences, newest first."""
        return [document(offence, unix_offset_s) for offence in reversed(self._offences)]

    def _add_step(self, record: StepRecord) -> None:
        self._modes[record.mode] += 1
        self.step.add(record.step_us)
        self.forward.add(record.forward_us)
        self.hook.add(record.hook_us)
        self._kinds.update(record.by_kind())
        end_s = record.start_s + record.step_us / 1e6
        if record.after_idle:
            self._decoded_s = None
        if record.mode in {"decode", "mixed"}:
            if self._decoded_s is not None and record.sequences:
                self.itl.add((end_s - self._decoded_s) * 1e6, record.sequences)
            self._decoded_s = end_s
        for rid, own in record.by_request().items():
            tally = self._requests.get(rid)
            if tally is None:
                tally = self._requests[rid] = _Tally()
                if len(self._requests) > _REQUESTS_REMEMBERED:
                    self._requests.popitem(last=False)
            else:
                self._requests.move_to_end(rid)
            us = sum(own.values())
            tally.steps += 1
            tally.own_us += us
            tally.worst_us = max(tally.worst_us, us)
            tally.kinds.update(own)
