"""Telling systemd how we are (`Type=notify`): as much of sd_notify(3) as we need. Without systemd it does nothing."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def notify_ready() -> None:
    """We serve, or serve again after a reload."""
    _notify("READY=1")


def notify_reloading() -> None:
    """We are taking up another configuration."""
    _notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def notify_stopping() -> None:
    """We are on our way out."""
    _notify("STOPPING=1")


@contextmanager
def alive_to_watchdog() -> Iterator[None]:
    """As long as the running loop turns, say so twice in the time after which systemd misses it (`WatchdogSec=`)."""
    loop = asyncio.get_running_loop()
    every_s = _watchdog_s() / 2
    timer: asyncio.TimerHandle | None = None

    def beat() -> None:
        nonlocal timer
        _notify("WATCHDOG=1")
        timer = loop.call_later(every_s, beat)

    if every_s:
        beat()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


def _watchdog_s() -> float:
    """0 where nobody watches this process."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    with suppress(ValueError):
        return int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
    return 0.0


def _notify(state: str) -> None:
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    # One that can't be reached is systemd's to notice.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender, suppress(OSError):
        sender.sendto(state.encode(), f"\0{path[1:]}" if path.startswith("@") else path)
