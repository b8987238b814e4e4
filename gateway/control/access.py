"""Where the lines for requests go: kept until a thread has written them, so that no request waits for a disk or a pipe.

Bounded: where they come faster than they can be written, the newest are left out and counted.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TextIO

Line = dict[str, Any]

_MOST_KEPT = 20_000
_COLLECT_S = 0.1
"""What comes within this time is written at once."""
_END_WITHIN_S = 2.0


class LineWriter:
    """See the module. `add` belongs to one thread, the loop's. `dropped`: how many were left out."""

    def __init__(
        self, stream: TextIO, render: Callable[[Line], str], common: Mapping[str, Any], most: int = _MOST_KEPT
    ) -> None:
        """render: makes the text of a line, without its end; runs in the thread. common: what all lines have."""
        self.dropped = 0
        self._stream = stream
        self._render = render
        self._common = dict(common)
        self._most = most
        self._lines: deque[Line] = deque()
        self._some = threading.Event()
        self._ending = threading.Event()
        self._told = 0
        self._thread = threading.Thread(target=self._run, name="access log", daemon=True)
        self._thread.start()

    def add(self, line: Line) -> None:
        """Have a line written; returns at once. It is the writer's from now on."""
        lines = self._lines
        if len(lines) >= self._most:
            self.dropped += 1
            return
        lines.append(line)
        if not self._some.is_set():
            self._some.set()

    def end_soon(self) -> None:
        """Take no more lines, and write what is left; returns at once."""
        self._ending.set()
        self._some.set()

    def close(self) -> None:
        """The same, but wait for it, two seconds at most."""
        self.end_soon()
        self._thread.join(_END_WITHIN_S)

    def _run(self) -> None:
        while True:
            self._some.wait()
            ending = self._ending.wait(_COLLECT_S)
            self._some.clear()
            try:
                self._write()
            except (OSError, ValueError):
                # Nobody reads stderr any more; the gateway goes on without.
                self._lines.clear()
            if ending:
                return

    def _write(self) -> None:
        lines, texts = self._lines, []
        while lines:
            texts.append(self._render(self._common | lines.popleft()))
        dropped = self.dropped
        if dropped > self._told:
            said = {
                "event": "access_lines_dropped",
                "level": "warning",
                "lines": dropped - self._told,
                "at": time.time(),
            }
            self._told = dropped
            texts.append(self._render(self._common | said))
        if texts:
            self._stream.write("\n".join(texts) + "\n")
            self._stream.flush()
