"""Listening sockets: bound, with the options that accepted connections inherit. Accepts nothing and knows no protocol.

What is set here is set once for all connections: Linux hands these options on to every socket that it accepts.
"""

import contextlib
import errno
import os
import socket
import stat
from typing import Final

BACKLOG: Final = 4096


def bind_tcp(host: str, port: int, *, reuse_port: bool = False) -> list[socket.socket]:
    """One socket for each address of `host`, all on one port; port 0 lets the system choose. Resolves names.

    reuse_port: other processes may have sockets of their own on the port, and the system spreads connections over them.
    Raises OSError, with nothing left open, naming the address.
    """
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            place = (address[0], port, *address[2:]) if len(address) > 2 else (address[0], port)
            sockets.append(_bound(family, kind, protocol, place, reuse_port))
            port = sockets[0].getsockname()[1]
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


def bind_unix(path: str, mode: int | None = None) -> socket.socket:
    """A socket at `path`, with the permissions `mode` where given. A socket there that nobody listens on is replaced.

    It is bound under another name and then moved, so that there is no moment without permissions or without a socket.
    Raises OSError.
    """
    _make_way(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    interim = f"{path}.{os.getpid()}"
    try:
        listener.setblocking(False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(interim)
        try:
            listener.bind(interim)
        except OSError as error:
            said = error.strerror or str(error)  # a path that is too long has no number
            raise OSError(error.errno or errno.ENAMETOOLONG, f"no socket at {path}: {said}") from None
        if mode is not None:
            os.chmod(interim, mode)
        os.rename(interim, path)
    except BaseException:
        listener.close()
        with contextlib.suppress(OSError):
            os.unlink(interim)
        raise
    return listener


class UnixFile:
    """The file of a Unix socket of ours, to be removed when we stop listening, unless another has taken its place."""

    __slots__ = ("_identity", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._identity = _identity(path)

    def remove(self) -> None:
        """Remove it if it is still ours."""
        if self._identity is not None and _identity(self.path) == self._identity:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def _bound(family: int, kind: int, protocol: int, address: tuple[str | int, ...], reuse_port: bool) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as asyncio and nginx do: 0.0.0.0 is apart
        for level, option, value in _INHERITED:
            listener.setsockopt(level, option, value)
        try:
            listener.bind(address)
        except OSError as error:
            raise OSError(error.errno, f"{address[0]}:{address[1]}: {error.strerror}") from None
    except BaseException:
        listener.close()
        raise
    return listener


def _make_way(path: str) -> None:
    """Make sure that nothing at `path` would be lost if a socket took its place."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(there.st_mode):
        raise OSError(errno.EEXIST, f"{path} is there already and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return
        except BlockingIOError:
            pass  # somebody listens and has a full queue
    raise OSError(errno.EADDRINUSE, f"{path}: somebody listens there")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_dev, there.st_ino


_NOTSENT_LOWAT: Final = 25
"""Linux's TCP_NOTSENT_LOWAT, which Python's socket module does not name."""
_INHERITED: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # A client that vanished without a word is noticed after two minutes; a request may be silent for longer.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    # Otherwise the system keeps up to 4 MiB for each client that does not read.
    (socket.IPPROTO_TCP, _NOTSENT_LOWAT, 128 * 1024),
)
