"""Verdicts on their way from whoever judges to the engine's step thread, which alone can end a request."""

import logging
from collections import deque
from collections.abc import Iterator

from replica.recorder.judge import Verdict

log = logging.getLogger("steplane")

_REMEMBERED = 1024
# The gateway and people recognise an end of ours by it.
REASON = "step_budget_exceeded"


class VerdictQueue:
    """`add` may be called from any thread; the engine takes what waits once a step."""

    def __init__(self) -> None:
        self._waiting: deque[Verdict] = deque(maxlen=_REMEMBERED)

    def add(self, verdict: Verdict) -> None:
        """Take a verdict; one that does not abort is only logged."""
        if verdict.abort:
            self._waiting.append(verdict)
        log.warning(
            "steplane: request %s: %s%s", verdict.rid, verdict.reason, "" if verdict.abort else " (recorded only)"
        )

    def take(self) -> Iterator[Verdict]:
        """All that wait, oldest first; each is handed out once."""
        while self._waiting:
            yield self._waiting.popleft()


def told(verdict: Verdict) -> str:
    """What the client of the request hears."""
    reason = verdict.reason
    return reason if reason.startswith(REASON) else f"{REASON}: {reason}"
