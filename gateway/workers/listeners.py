"""The listening sockets of a supervisor: bound once, for all generations of workers, and never closed in between.

On a TCP port every slot has a socket of its own (SO_REUSEPORT); a Unix socket is one for all. Because a queue is never
closed, no connection that a client has opened is lost when workers come and go. Accepts nothing itself.
"""

import socket
from collections.abc import Sequence

from gateway.control.listenconfig import ListenConfig
from gateway.control.network import Address, UnixPath
from gateway.wire.listening import BACKLOG, UnixFile, bind_tcp, bind_unix

Listener = tuple[int, socket.socket]
"""A listener's number in the configuration, and a socket for it."""


class Listeners:
    """The sockets of `slots` workers, by slot."""

    def __init__(self, configs: Sequence[ListenConfig], slots: int) -> None:
        """Bind them all; clients that come wait from now on. Raises OSError, with nothing left open."""
        self._addresses: list[Address | UnixPath] = []
        self._files: list[UnixFile] = []
        self.slots: list[list[Listener]] = [[]]
        try:
            for number, config in enumerate(configs):
                self._bind_first(number, config)
            self.grow(slots)
        except BaseException:
            self.close()
            raise

    @property
    def places(self) -> list[Address | UnixPath]:
        """Where clients connect, in the order of the configuration, with real ports."""
        return self._addresses

    def grow(self, slots: int) -> None:
        """Have sockets for so many slots at least. Raises OSError."""
        while len(self.slots) < slots:
            more: list[Listener] = []
            self.slots.append(more)
            for number, first in self.slots[0]:
                if first.family == socket.AF_UNIX:
                    more.append((number, first.dup()))
                    continue
                host, port = first.getsockname()[:2]
                for sock in bind_tcp(host, port, reuse_port=True):
                    sock.listen(BACKLOG)
                    more.append((number, sock))

    def close(self) -> None:
        """Close all of them."""
        for slot in self.slots:
            for _, sock in slot:
                sock.close()
        for file in self._files:
            file.remove()

    def _bind_first(self, number: int, config: ListenConfig) -> None:
        address = config.address
        if isinstance(address, UnixPath):
            sockets = [bind_unix(address.path, None if config.mode is None else int(config.mode, 8))]
            self._files.append(UnixFile(address.path))
            self._addresses.append(address)
        else:
            # Somebody of the same user who shares ports, too, would not be noticed: so first without sharing.
            for probe in bind_tcp(address.host, address.port):
                probe.close()
            sockets = bind_tcp(address.host, address.port, reuse_port=True)
            self._addresses.append(Address(address.host, sockets[0].getsockname()[1]))
        for sock in sockets:
            sock.listen(BACKLOG)
            self.slots[0].append((number, sock))
