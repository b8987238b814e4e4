"""Why an attempt did not answer a request, in the words of the configuration and the metrics.

| reason     | what happened                                              | has the replica worked on it? |
|------------|------------------------------------------------------------|-------------------------------|
| `connect`  | no connection: refused, unreachable, too late              | no                            |
| `stale`    | a kept connection was closed just as it was used again     | no                            |
| `reset`    | a new connection was closed before a byte of an answer     | perhaps                       |
| `timeout`  | no byte of an answer within `first_byte_s`                 | yes, and may be still         |
| `http_429`, `http_503` | busy                                           | no                            |
| `http_500`, `http_502`, `http_504` | an error of the replica            | perhaps                       |

Whatever breaks after the first byte of an answer has no reason here: nothing is repeated then.
"""

from enum import StrEnum


class Reason(StrEnum):
    """See the table above."""

    connect = "connect"
    stale = "stale"
    reset = "reset"
    timeout = "timeout"
    http_429 = "http_429"
    http_500 = "http_500"
    http_502 = "http_502"
    http_503 = "http_503"
    http_504 = "http_504"

    @property
    def is_unprocessed(self) -> bool:
        """The replica has certainly not begun: even what must not be done twice may be tried again."""
        return self is Reason.connect or self is Reason.stale

    @property
    def is_back_pressure(self) -> bool:
        """The replica is busy, not broken."""
        return self is Reason.http_429 or self is Reason.http_503


_OF_FAILURE = {
    "connect_failed": Reason.connect,
    "connect_timeout": Reason.connect,
    "pool_full": Reason.connect,
    "exhausted": Reason.connect,
    "stale": Reason.stale,
    "closed_early": Reason.reset,
    "first_byte_timeout": Reason.timeout,
}
_OF_STATUS = {int(reason.value.removeprefix("http_")): reason for reason in Reason if reason.startswith("http_")}


def reason_of_failure(kind: str) -> Reason | None:
    """Of an attempt that failed on the wire; `kind` is the value of a `wire.FailureKind`. None: never repeated."""
    return _OF_FAILURE.get(kind)


def reason_of_status(status: int) -> Reason | None:
    """Of an answer; None: it is the answer."""
    return _OF_STATUS.get(status)
