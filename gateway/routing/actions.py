"""What a rule does with a request beside sending it somewhere: plain data; others carry it out."""

from dataclasses import dataclass

from gateway.hookcost.edits import Cap


@dataclass(frozen=True, slots=True)
class Shadow:
    """A copy of the request goes to another pool, and its answer is thrown away.

    share:       of the requests, 0 to 1.
    max_running: copies at one time; there are no more of them meanwhile.
    timeout_s:   a copy is aborted then.
    """

    pool: str
    share: float = 1.0
    max_running: int = 16
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Refuse:
    """The answer that requests get instead of a pool; `retry_after_s` 0: no `Retry-After`."""

    status: int
    message: str
    retry_after_s: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Actions:
    """All that a rule changes; there is one object for each rule, compared by `is`.

    set_headers:      names and values that the replica gets, in place of the client's.
    strip_headers:    lower-case names of the client's that it does not get.
    response_headers: names and values that are added to the answer.
    caps, strips:     parameters of the body that are limited, and that are taken out.
    """

    set_headers: tuple[tuple[str, str], ...] = ()
    strip_headers: tuple[str, ...] = ()
    response_headers: tuple[tuple[str, str], ...] = ()
    caps: tuple[Cap, ...] = ()
    strips: tuple[str, ...] = ()
    shadow: Shadow | None = None

    @property
    def edits_body(self) -> bool:
        """Whether the body may be sent on otherwise than it came."""
        return bool(self.caps or self.strips)

    @property
    def edits_head(self) -> bool:
        """Whether the request's headers are sent on otherwise than they came."""
        return bool(self.set_headers or self.strip_headers)
