"""When one request came how far, and by which ids other systems know it (W3C Trace Context, level 1).

Data alone, made for each request where something is traced. What becomes of it is tracing.py's.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.breaker.outcome import Outcome
    from gateway.call import Attempt

_PARENT: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED: Final = 0x01


class Parent:
    """What a client's `traceparent` says. `state`: its `tracestate`, b"" without one."""

    __slots__ = ("sampled", "span_id", "state", "trace_id")

    def __init__(self, trace_id: int, span_id: int, sampled: bool, state: bytes) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.sampled = sampled
        self.state = state


class Leg:
    """One attempt. Times are readings of the loop's clock; `outcome` is None while it runs."""

    __slots__ = ("attempt", "began_s", "ended_s", "outcome", "span_id")

    def __init__(self, attempt: Attempt, span_id: int, began_s: float) -> None:
        self.attempt = attempt
        self.span_id = span_id
        self.began_s = began_s
        self.ended_s = 0.0
        self.outcome: Outcome | None = None


class Trace:
    """One request. Times are readings of the loop's clock, 0.0 before they happen.

    parent:  who asked for it, where the client said so.
    sampled: its spans are to be exported. legs: its attempts, in the order in which they began.
    """

    __slots__ = ("classified_s", "decided_s", "legs", "parent", "sampled", "span_id", "trace_id")

    def __init__(self, trace_id: int, parent: Parent | None, sampled: bool, classified_s: float) -> None:
        self.trace_id = trace_id
        self.parent = parent
        self.sampled = sampled
        self.span_id = new_span_id()
        self.classified_s = classified_s
        self.decided_s = 0.0
        self.legs: list[Leg] = []

    @property
    def id(self) -> str:
        """The trace's id as others write it."""
        return f"{self.trace_id:032x}"

    def header(self, span_id: int) -> bytes:
        """`traceparent` for what happens within a span of ours."""
        return b"00-%032x-%016x-%02x" % (self.trace_id, span_id, _SAMPLED if self.sampled else 0)


def parent_of(headers: list[tuple[bytes, bytes]]) -> Parent | None:
    """The parent that a request's header fields name, if they name one that is valid."""
    found: Parent | None = None
    states: list[bytes] = []
    for name, value in headers:
        if len(name) == 11 and name.lower() == b"traceparent":
            if found is not None:
                return None  # two of them: neither can be believed
            found = _read(value.strip())
            if found is None:
                return None
        elif len(name) == 10 and name.lower() == b"tracestate":
            states.append(value.strip())
    if found is not None:
        found.state = b",".join(states)
    return found


def new_trace_id() -> int:
    """A random one, never 0."""
    return secrets.randbits(128) or 1


def new_span_id() -> int:
    """A random one, never 0."""
    return secrets.randbits(64) or 1


def _read(value: bytes) -> Parent | None:
    match = _PARENT.fullmatch(value)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    # Later versions may say more behind what we know; of ours that is an error.
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    trace, span = int(trace_id, 16), int(span_id, 16)
    if not trace or not span:
        return None
    return Parent(trace, span, bool(int(flags, 16) & _SAMPLED), b"")
