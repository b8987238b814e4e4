"""`steplane top`: a running gateway live on a terminal: is anything wrong, pools, replicas, offenders.

Asks the admin API once a second; what can't be asked is shown as old, not as an error. The keys q and p end and pause.
"""

import contextlib
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.live import Live

from gateway.cli.adminport import AdminPort
from gateway.cli.failure import CliError
from gateway.cli.text import print_json
from gateway.cli.topscreen import Shown, screen

_PATH = "/api/v1/overview"
_QUIT = frozenset("qQ\x03\x04")
_PAUSE = frozenset("pP ")


def run(admin: str, every_s: float, *, once: bool, as_json: bool) -> None:
    """Show it until q or Ctrl-C; once where the output is no terminal. Raises CliError."""
    port = AdminPort(admin, timeout_s=max(2.0, every_s))
    document = port.get(_PATH)  # who can't be asked at all is an error
    if as_json:
        print_json(document)
        return
    console = Console(highlight=False)
    if once or not console.is_terminal:
        console.print(screen(Shown(document, port.url), console.width, None))
        return
    with contextlib.suppress(KeyboardInterrupt), _keys() as keys:
        _live(console, port, document, every_s, keys)


def _live(console: Console, port: AdminPort, document: dict[str, Any], every_s: float, keys: "_Keys") -> None:
    shown, next_s = Shown(document, port.url), time.monotonic() + every_s
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(screen(shown, console.width, console.height), refresh=True)
            pressed = keys.wait(max(0.0, next_s - time.monotonic()))
            if pressed in _QUIT:
                return
            if pressed in _PAUSE:
                shown.paused = not shown.paused
            if time.monotonic() < next_s:
                continue
            next_s = time.monotonic() + every_s
            if shown.paused:
                continue
            try:
                shown.document, shown.stale = port.get(_PATH), ""
            except CliError as error:
                shown.stale = str(error)


class _Keys:
    """What is typed; on an input that is no terminal nothing is."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str:
        """The key that is pressed within so many seconds, or ""."""
        if self._descriptor is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        return sys.stdin.read(1) or "\x04" if ready else ""


@contextlib.contextmanager
def _keys() -> Iterator[_Keys]:
    """Keys as they are pressed, without their showing."""
    if not sys.stdin.isatty():
        yield _Keys(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield _Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
