"""What came of one request, as its client saw it."""

from dataclasses import dataclass, field

from loadtest.traffic.plan import Planned


@dataclass(slots=True)
class Outcome:
    """Moments are seconds on the monotonic clock; None where they never came.

    due:      when it should have been sent: what times are counted from, so that a late client hides nothing.
    sent:     when it was.
    arrivals: when tokens came; those that one read brought together are one arrival, for their reader waited once.
    tokens:   events that brought text.
    error:    why it has failed; empty where it has not. `left` is a client that went away as it was told to.
    reply:    the body, kept for those that are validated.
    valid:    whether the reply satisfies its schema; None where nobody asked, or it was cut at its length.
    """

    planned: Planned
    due: float
    sent: float = 0.0
    ended: float | None = None
    arrivals: list[float] = field(default_factory=list)
    tokens: int = 0
    status: int = 0
    pool: str = ""
    error: str = ""
    left: bool = False
    reply: bytearray | None = None
    valid: bool | None = None
    why_invalid: str = ""
