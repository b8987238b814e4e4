"""What a gateway remembers for the people who look at it: its pools' last hour, what replicas have named, portraits of
what was quarantined, and the newest decisions while somebody watches. Data alone; who knows it writes it."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from gateway.control.dashboard.history import History
from gateway.control.dashboard.namings import Namings
from gateway.control.dashboard.portraits import Portraits
from gateway.control.decisions import Decisions
from gateway.control.tally import TTFT_BUCKETS_S


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one gateway."""

    history: History
    namings: Namings
    portraits: Portraits
    decisions: Decisions
    started_at: float
    """Seconds of the wall clock."""


def new_memory(clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> Memory:
    """Of a gateway that begins now. `clock` is monotonic, `wall` the time of day, both in seconds."""
    return Memory(History(TTFT_BUCKETS_S), Namings(wall), Portraits(), Decisions(clock), wall())
