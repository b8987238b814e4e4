"""The records of an engine's steps, and their form in the ring.

Times are wall-clock durations in the unit that the name ends with; moments (`*_s`) are seconds of the recorder's
monotonic clock. In the ring a record is a marshalled tuple: both ends are the same Python on the same machine, and
nothing in the standard library writes a list of a hundred hooks faster (5 µs).
"""

import marshal
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple


class HookKind(StrEnum):
    """Kinds of CPU work on the step thread between two forward passes."""

    grammar_fill = "grammar_fill"
    grammar_accept = "grammar_accept"
    grammar_poll = "grammar_poll"
    """Waiting inside the step for a grammar that is being compiled."""
    logprobs = "logprobs"
    prompt_logprobs = "prompt_logprobs"
    stop = "stop"
    sampling = "sampling"
    """Custom logit processors and the like, run before a token is chosen."""
    output = "output"
    """Handing finished tokens to the process that turns them into text."""
    other = "other"
    """The engine's own bookkeeping for the batch."""


KINDS: tuple[HookKind, ...] = tuple(HookKind)
KIND_INDEX: dict[HookKind, int] = {kind: index for index, kind in enumerate(KINDS)}

# (request id, index into KINDS, µs). An id of None: the whole batch's, shared by its requests alike.
RawHook = tuple[str | None, int, float]


class HookTime(NamedTuple):
    """One hook in one step. `rid` None: done for the batch as a whole."""

    rid: str | None
    kind: HookKind
    us: float


class Limit(StrEnum):
    """What a request can be over."""

    hard = "hard"
    """Its hooks held one step for longer than any step may be held."""
    soft = "soft"
    """Its hooks were over the step budget in too many steps of a window."""
    compile = "compile"
    """Its grammar took too long to compile."""
    asked = "asked"
    """None: somebody asked for its end through the feed."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One iteration of the engine loop.

    seq:           position in the stream of all records; without gaps at the writer.
    start_s:       when it began.
    step_us:       until the next iteration began.
    forward_us:    the model: launching it and waiting for it.
    hook_us:       everything done for sequences outside the model, measured around the parts in `hooks`.
    cpu_us:        CPU time of the step thread outside the model. Far below `hook_us`: it was starved, not busy.
    mode:          `decode`, `prefill`, `mixed` (some prefill while others decode) or `none` (no forward pass).
    sequences:     in the forward pass.
    prompt_tokens: prefilled in it.
    after_idle:    the engine had nothing to do before this step.
    cold:          kinds that ran for the first times in the life of the engine: nobody is judged by them.
    """

    seq: int
    start_s: float
    step_us: float
    forward_us: float
    hook_us: float
    cpu_us: float
    mode: str
    sequences: int
    prompt_tokens: int
    after_idle: bool
    cold: tuple[HookKind, ...]
    hooks: tuple[HookTime, ...]

    def by_kind(self) -> dict[HookKind, float]:
        """Hook time in µs of all requests together."""
        totals: dict[HookKind, float] = {}
        for _, kind, us in self.hooks:
            totals[kind] = totals.get(kind, 0.0) + us
        return totals

    def by_request(self) -> dict[str, dict[HookKind, float]]:
        """Hook time in µs that is each request's own."""
        totals: dict[str, dict[HookKind, float]] = {}
        for rid, kind, us in self.hooks:
            if rid is not None:
                own = totals.setdefault(rid, {})
                own[kind] = own.get(kind, 0.0) + us
        return totals

    def judged(self) -> dict[str, dict[HookKind, float]]:
        """`by_request` without the kinds that were still warming up: what requests may be judged by."""
        if not self.cold:
            return self.by_request()
        totals: dict[str, dict[HookKind, float]] = {}
        for rid, kinds in self.by_request().items():
            warm = {kind: us for kind, us in kinds.items() if kind not in self.cold}
            if warm:
                totals[rid] = warm
        return totals

    def shared_us(self) -> float:
        """Hook time in µs that belongs to no request in particular."""
        return sum([us for rid, _, us in self.hooks if rid is None])


@dataclass(frozen=True, slots=True)
class Offence:
    """A request over a limit.

    us, limit_us:  what it took and what it may take; for `Limit.soft` the worst of its steps over budget.
    kind:          the hook that took most; None for a compile.
    abort:         the request is being ended, with `reason` as what its client is told.
    stack:         the step thread's Python frames while it happened, innermost last; empty when it was over too soon.
    """

    seq: int
    at_s: float
    rid: str
    limit: Limit
    kind: HookKind | None
    us: float
    limit_us: float
    abort: bool
    reason: str
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileRecord:
    """A grammar that left the compile queue. `error` None: it is ready to use."""

    seq: int
    at_s: float
    rid: str
    grammar: str
    ms: float
    error: str | None


@dataclass(frozen=True, slots=True)
class Note:
    """Something a person should know: a timer that is off, a queue that overflowed."""

    seq: int
    at_s: float
    text: str


Record = StepRecord | Offence | CompileRecord | Note


class Tag(IntEnum):
    """First element of every marshalled record."""

    step = 0
    offence = 1
    compile = 2
    note = 3


def encode(record: Offence | CompileRecord | Note) -> bytes:
    """The form in the ring. Steps are encoded by the recorder itself, from parts it already holds."""
    match record:
        case Offence():
            fields = (
                Tag.offence.value,
                record.at_s,
                record.rid,
                record.limit.value,
                None if record.kind is None else KIND_INDEX[record.kind],
                record.us,
                record.limit_us,
                record.abort,
                record.reason,
                record.stack,
            )
            return marshal.dumps(fields)
        case CompileRecord():
            return marshal.dumps((Tag.compile.value, record.at_s, record.rid, record.grammar, record.ms, record.error))
        case Note():
            return marshal.dumps((Tag.note.value, record.at_s, record.text))


def decode(seq: int, payload: bytes) -> Record:
    """The record that `payload` holds. ValueError: it was written by another version."""
    tag, *fields = marshal.loads(payload)  # noqa: S302 - written by our own engine process into memory it shares
    try:
        match tag:
            case Tag.step:
                fields[-2] = tuple([KINDS[kind] for kind in fields[-2]])
                fields[-1] = tuple([HookTime(rid, KINDS[kind], us) for rid, kind, us in fields[-1]])
                return StepRecord(seq, *fields)
            case Tag.offence:
                at_s, rid, limit, kind, *rest = fields
                return Offence(seq, at_s, rid, Limit(limit), None if kind is None else KINDS[kind], *rest)
            case Tag.compile:
                return CompileRecord(seq, *fields)
            case Tag.note:
                return Note(seq, *fields)
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(f"record {seq} of kind {tag} has other fields than this version writes: {error}") from error
    raise ValueError(f"record {seq} is of unknown kind {tag}: the engine runs another version of Steplane")
