"""A transport without a socket: what a protocol writes is given to a function, and what it reads is handed to it."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any


class MemoryTransport(asyncio.Transport):
    """One side of a connection that only exists between us and a stream of Envoy's.

    carried: whose it is, for whoever is handed a transport and wants to know that.
    """

    def __init__(
        self,
        carried: object,
        write: Callable[[bytes], None],
        closed: Callable[[], None],
        stand_in: socket.socket | None = None,
    ) -> None:
        """`closed` is told once, when the protocol closes it. `stand_in`: a socket for who asks it for its state."""
        super().__init__()
        self.carried = carried
        self._write = write
        self._closed = closed
        self._stand_in = stand_in
        self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._stand_in if name == "socket" and self._stand_in is not None else default

    def write(self, data: Any) -> None:
        if not self._closing:
            self._write(bytes(data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._closed()

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        """Envoy's messages come at its own pace, and are bounded by its own buffers."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is kept here."""
