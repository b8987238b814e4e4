"""The leases of one gateway: which it holds, and which it has to give back. No I/O."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that this gateway asked for. `holder` is a name used once; it is over by `until` on the clock."""

    key: str
    holder: str
    until: float


@dataclass(slots=True)
class Leases:
    """Each key is held at most once. What is over is forgotten."""

    clock: Callable[[], float]
    _held: dict[str, Lease] = field(default_factory=dict)
    _given_up: dict[str, Lease] = field(default_factory=dict)

    def granted(self, lease: Lease) -> None:
        """It is ours."""
        self._held[lease.key] = lease
        self._drop_over(self._held)

    def doubtful(self, lease: Lease) -> None:
        """It may be ours, but too late: nobody counts on it, and it is to be given back."""
        self._given_up[lease.holder] = lease
        self._drop_over(self._given_up)

    def release(self, key: str) -> bool:
        """Give a lease back. False if it isn't held."""
        lease = self._held.pop(key, None)
        if lease is None:
            return False
        self._given_up[lease.holder] = lease
        return True

    def to_release(self) -> list[Lease]:
        """Leases that Redis has to be told of."""
        self._drop_over(self._given_up)
        return list(self._given_up.values())

    def released(self, lease: Lease) -> None:
        """Redis has been told."""
        self._given_up.pop(lease.holder, None)

    def _drop_over(self, leases: dict[str, Lease]) -> None:
        now = self.clock()
        for name in [name for name, lease in leases.items() if lease.until <= now]:
            del leases[name]
