"""The engine's side of the feed: starts the feed process, hears its requests, starts it again when it dies.

The process inherits two descriptors: the ring's memory, and one end of a socket pair over which it sends what readers
ask for, a line of JSON each. The end of that socket tells it that the engine is gone.
"""

import json
import logging
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

from replica.settings import Listen

log = logging.getLogger("steplane")

_MOST_PENDING_BYTES = 1 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_LIVED_LONG_S = 60.0


@dataclass(frozen=True, slots=True)
class EngineName:
    """Who is measured: shown to every reader of the feed."""

    engine: str
    version: str
    rank: int = 0


class FeedProcess:
    """One feed process at a time. All methods belong to one thread."""

    def __init__(self, ring_fd: int, listen: Listen, token: str, name: EngineName) -> None:
        self.link: socket.socket | None = None
        self._ring_fd = ring_fd
        self._listen = listen
        self._token = token
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._started_s = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._not_before_s = 0.0

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return None if self._process is None else self._process.pid

    def keep_running(self) -> None:
        """Start the process if it does not run, not more often than is sensible."""
        now = time.monotonic()
        if self._process is not None or now < self._not_before_s:
            return
        try:
            self._start()
        except OSError as error:
            log.error("steplane: the step feed cannot be started (%s); trying again in %.0f s", error, self._pause_s)
            self._delay(now)
        self._started_s = now

    def receive(self) -> list[tuple[str, str]]:
        """What readers asked for: (request id, reason) pairs to abort. Notices when the process has gone."""
        link = self.link
        if link is None:
            return []
        try:
            data = link.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._gone()
            return []
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > _MOST_PENDING_BYTES:
            self._pending = b""
        return [asked for line in lines if (asked := _abort(line)) is not None]

    def close(self) -> None:
        """End the process."""
        if self.link is not None:
            self.link.close()
            self.link = None
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [
                *(sys.executable, "-m", "replica.feed"),
                *("--ring-fd", str(self._ring_fd), "--link-fd", str(theirs.fileno()), "--pid", str(os.getpid())),
                *("--host", self._listen.host, "--port", str(self._listen.port)),
                *("--engine", self._name.engine, "--version", self._name.version, "--rank", str(self._name.rank)),
            ]
            self._process = subprocess.Popen(  # noqa: S603 - our own module, run by the engine's own Python
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(self._ring_fd, theirs.fileno()),
                env=os.environ | {"STEPLANE_FEED_TOKEN": self._token},
                # Ctrl-C is for the engine; the feed ends when the engine has.
                start_new_session=True,
            )
        ours.setblocking(False)
        self.link = ours

    def _gone(self) -> None:
        now = time.monotonic()
        process = self._process
        if self.link is not None:
            self.link.close()
            self.link = None
        if process is None:
            return
        process.kill()
        status = process.wait()
        self._process = None
        self._pending = b""
        if now - self._started_s > _LIVED_LONG_S:
            self._pause_s = _FIRST_PAUSE_S
        log.warning("steplane: the step feed ended with status %s; starting it again in %.0f s", status, self._pause_s)
        self._delay(now)

    def _delay(self, now: float) -> None:
        self._not_before_s = now + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)


def _abort(line: bytes) -> tuple[str, str] | None:
    try:
        asked = json.loads(line)
        return str(asked["abort"]), str(asked.get("reason", ""))
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
