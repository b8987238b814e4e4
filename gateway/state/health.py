"""How the shared store is, in the words of its status, and in the log at each change for better or worse."""

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

_log = structlog.get_logger("steplane.state")


@dataclass(slots=True)
class Health:
    """kind: `redis` or `supervisor`. connected: changes get through. since: clock reading of its last change."""

    kind: str
    address: str
    clock: Callable[[], float]
    connected: bool = False
    since: float = field(init=False)
    last_error: str | None = None
    latency_ms: float | None = None

    def __post_init__(self) -> None:
        self.since = self.clock()

    def well(self) -> None:
        """Changes get through."""
        self.last_error = None
        if not self.connected:
            self.connected, self.since = True, self.clock()
            _log.info("state is shared", **{self.kind: self.address})

    def ill(self, error: BaseException) -> None:
        """They don't, and why."""
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if self.connected or self.last_error is None:
            _log.warning(
                "state is not shared for now; changes are kept and published later",
                error=text,
                **{self.kind: self.address},
            )
        if self.connected:
            self.connected, self.since = False, self.clock()
        self.last_error = text
