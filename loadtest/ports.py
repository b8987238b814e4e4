"""Loopback ports for servers that listen later, as processes of their own do.

What the kernel chooses, for a server that leaves the port to it and for each connection that goes out, is above 32767
on Linux unless somebody has set another range. A port from there that is free now may be anybody's when its server
comes; these are below.
"""

import random
import socket

_FIRST, _END = 10_000, 22_000
_CHANCE = random.SystemRandom()
_GIVEN: set[int] = set()


def free_port(*above: int) -> int:
    """A port that nobody has, and nobody so far above it. No process is given one twice."""
    while True:
        port = _CHANCE.randrange(_FIRST, _END)
        ports = {port, *(port + each for each in above)}
        if not ports & _GIVEN and all(map(is_free, ports)):
            _GIVEN.update(ports)
            return port


def is_free(port: int) -> bool:
    """Whether nobody listens there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
