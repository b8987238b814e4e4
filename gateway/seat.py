"""A gateway's place among others of one supervisor: what it is given instead of seeing to it itself. Data alone."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Seat:
    """Of a gateway that is one of several workers.

    admin: the Unix socket for its admin port; the supervisor's is the one that people see.
    books: the Unix socket of the supervisor's shared state.

    It binds no port for clients: `Gateway.accept` says from which sockets it takes them.
    """

    admin: Path
    books: Path
