"""The newest decisions, kept while somebody watches them: a bounded ring that the data plane adds to.

What is in one is the data plane's to say (gateway/tail.py). With nobody watching nothing is kept and nothing is asked
for.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

_KEPT = 256
_MOST_PER_S = 100
"""So many are enough for an eye; of more a part is taken, and the rest counted."""
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which decisions somebody wants to see; "" and 0 for any.

    rule: of that name. min_us: step cost of at least so much.
    """

    pool: str = ""
    rule: str = ""
    tenant: str = ""
    min_us: float = 0.0

    def takes(self, decision: dict[str, Any]) -> bool:
        """Whether it is one of those."""
        return bool(
            (not self.pool or decision["pool"] == self.pool)
            and (not self.rule or decision["rule"] == self.rule)
            and (not self.tenant or decision["tenant"] == self.tenant)
            and decision["step_us"] >= self.min_us
        )


class Decisions:
    """Of one gateway; belongs to its event loop.

    on_watched: told when the first begins to watch and when the last has left; whoever adds listens to that.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic, in seconds."""
        self.on_watched: Callable[[bool], None] = _nobody
        self._clock = clock
        self._ring: deque[tuple[int, dict[str, Any]]] = deque(maxlen=_KEPT)
        self._watchers = 0
        self._added = 0
        self._second = -1
        self._in_second = 0
        self._left_out = 0
        self._news = asyncio.Event()

    def wants(self) -> bool:
        """Whether one more is wanted in this second; if not, it is counted as left out."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second <= _MOST_PER_S:
            return True
        self._left_out += 1
        return False

    def add(self, decision: dict[str, Any]) -> None:
        """A request was finished."""
        self._added += 1
        self._ring.append((self._added, decision))
        self._news.set()

    async def watch(self, wanted: Wanted) -> AsyncGenerator[tuple[list[dict[str, Any]], int], None]:
        """What is new, a few times a second at most, and how many were left out since; each second at least."""
        self._watchers += 1
        if self._watchers == 1:
            self._ring.clear()
            self.on_watched(True)
        seen, left_out = 0, self._left_out
        try:
            while True:
                news = [decision for number, decision in self._ring if number > seen]
                seen = self._added
                skipped, left_out = self._left_out - left_out, self._left_out
                yield [each for each in news if wanted.takes(each)], skipped
                await self._wait()
        finally:
            self._watchers -= 1
            if not self._watchers:
                self.on_watched(False)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                self._news.clear()
                await self._news.wait()
                await asyncio.sleep(_PATIENCE_S / 5)  # what comes together goes out together
        except TimeoutError:
            pass


def _nobody(_watched: bool) -> None:
    """Nothing adds to it."""
