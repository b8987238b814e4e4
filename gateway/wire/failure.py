"""What can go wrong between us and an upstream, in words that blame the right party."""

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    connect_failed = "connect_failed"
    """Refused, unreachable, TLS or name resolution failed: the request was never written."""
    connect_timeout = "connect_timeout"
    pool_full = "pool_full"
    """All connections that the upstream may have were in use for too long: the request was never written."""
    exhausted = "exhausted"
    """We have no file, port or memory left for a connection: no fault of the upstream's, and nothing was written."""
    stale = "stale"
    """A pooled connection was closed just as it was reused: the server's idle limit, not a fault. Nothing was read."""
    closed_early = "closed_early"
    """The connection was closed before the first response byte, and the upstream may have had the request."""
    first_byte_timeout = "first_byte_timeout"
    bad_response = "bad_response"
    """The upstream does not speak HTTP/1.1 as we understand it."""
    died = "died"
    """The connection was lost in mid-response."""
    idle_timeout = "idle_timeout"
    """The response stopped in the middle for too long."""
    ended = "ended"
    """The handler ended it: no fault of the upstream's."""
    deadline_exceeded = "deadline_exceeded"
    """The time that the request itself had was over: no fault of the upstream's."""
    draining = "draining"
    """We are going away, and the time for what ran is over: no fault of the upstream's."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt. `detail` is for people and names the upstream; it never quotes a body."""

    kind: FailureKind
    detail: str

    @property
    def repeatable(self) -> bool:
        """No byte of a response came and the connection is gone: another upstream may be asked."""
        return self.kind in _REPEATABLE

    @property
    def status(self) -> int:
        """What a client is told when nothing else can be tried."""
        if self.kind in _UNAVAILABLE:
            return 503
        return 504 if self.kind in _TIMED_OUT else 502


_REPEATABLE = frozenset(
    (
        FailureKind.connect_failed,
        FailureKind.connect_timeout,
        FailureKind.pool_full,
        FailureKind.exhausted,
        FailureKind.stale,
        FailureKind.closed_early,
    )
)
_UNAVAILABLE = frozenset((FailureKind.pool_full, FailureKind.exhausted, FailureKind.draining))
_TIMED_OUT = frozenset(
    (
        FailureKind.connect_timeout,
        FailureKind.first_byte_timeout,
        FailureKind.idle_timeout,
        FailureKind.deadline_exceeded,
    )
)
