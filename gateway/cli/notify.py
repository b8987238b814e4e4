"""Telling systemd how we are (`Type=notify`): as much of sd_notify(3) as we need. Without systemd it does nothing."""

import os
import socket
import time
from contextlib import suppress


def notify_ready() -> None:
    """We serve, or serve again after a reload."""
    _notify("READY=1")


def notify_reloading() -> None:
    """We are taking up another configuration."""
    _notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def notify_stopping() -> None:
    """We are on our way out."""
    _notify("STOPPING=1")


def _notify(state: str) -> None:
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    # One that can't be reached is systemd's to notice.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender, suppress(OSError):
        sender.sendto(state.encode(), f"\0{path[1:]}" if path.startswith("@") else path)
