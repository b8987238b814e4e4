"""Which signature kills replicas: those that were received just before a death, twice, and did no harm elsewhere.

A death alone says little: all that ran there is suspect, and most of it innocent. So a signature is blamed only when
different replicas died within seconds of receiving it; and there is a control. Whoever also ran well, at that time or
between the deaths, is acquitted.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.breaker.policy import Crash
from gateway.hookcost.observation import Origin


class Received(Protocol):
    """A request at a replica. `received_s`: clock reading when it was sent there."""

    @property
    def origin(self) -> Origin: ...

    @property
    def received_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Guilt:
    """The request of `origin` was received just before its replica died, as its like had been at others of these."""

    origin: Origin
    replicas: tuple[str, ...]


@dataclass(slots=True)
class _Suspicion:
    deaths: dict[str, float] = field(default_factory=dict)
    """When each replica died of it, perhaps."""


class CrashWatch:
    """Remembers deaths by signature, and who ended well lately. Bounded: the longest untouched are forgotten."""

    def __init__(self, policy: Crash, capacity: int) -> None:
        self._policy = policy
        self._capacity = capacity
        self._suspects: OrderedDict[str, _Suspicion] = OrderedDict()
        self._well: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._suspects) + len(self._well)

    def reconfigure(self, policy: Crash) -> None:
        """Judge by other limits; what is suspected stays so."""
        self._policy = policy

    def ended_well(self, signature: str, at_s: float) -> None:
        """A request of it was answered."""
        well = self._well
        well[signature] = at_s
        well.move_to_end(signature)
        if len(well) > self._capacity:
            well.popitem(last=False)
        if self._suspects:
            self._suspects.pop(signature, None)

    def died(
        self, replica: str, at_s: float, running: Iterable[Received], elsewhere: Iterable[Received] = ()
    ) -> list[Guilt]:
        """Who is to blame when `replica` died. `running`: those there that may be; `elsewhere`: all on the others."""
        policy = self._policy
        acquitted = {other.origin.signature for other in elsewhere if at_s - other.received_s > policy.within_s}
        newest: dict[str, Received] = {}
        for request in running:
            if at_s - request.received_s <= policy.within_s:
                newest[request.origin.signature] = request
        guilty: list[Guilt] = []
        for signature, request in newest.items():
            if signature in acquitted or at_s - self._well.get(signature, float("-inf")) <= policy.control_s:
                self._suspects.pop(signature, None)
                continue
            deaths = self._suspicion(signature).deaths
            deaths[replica] = at_s
            for name in [name for name, died_s in deaths.items() if at_s - died_s > policy.window_s]:
                del deaths[name]
            if len(deaths) >= policy.replicas:
                del self._suspects[signature]
                guilty.append(Guilt(request.origin, tuple(deaths)))
        return guilty

    def _suspicion(self, signature: str) -> _Suspicion:
        suspicion = self._suspects.setdefault(signature, _Suspicion())
        self._suspects.move_to_end(signature)
        if len(self._suspects) > self._capacity:
            self._suspects.popitem(last=False)
        return suspicion
