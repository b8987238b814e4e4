"""Which signatures fail wherever they run: their faults are not held against the replicas that had to run them.

The control for a replica's faults. A signature that also faulted on another replica, one that is trusted, with no good
answer by any since, is a culprit; one that faults on one replica alone is not.
"""

from collections import OrderedDict


class _Faults:
    __slots__ = ("last_s", "replicas")

    def __init__(self) -> None:
        self.replicas: dict[str, float] = {}
        """When it faulted on each of them last, with no good answer since."""
        self.last_s = 0.0


class Culprits:
    """Signatures with faults within `window_s`. Bounded: beyond, the one that faulted longest ago is forgotten."""

    def __init__(self, window_s: float, capacity: int = 1000) -> None:
        self._window_s = window_s
        self._capacity = capacity
        self._faults: OrderedDict[str, _Faults] = OrderedDict()

    def __len__(self) -> int:
        return len(self._faults)

    def faulted(self, signature: str, replica: str, now_s: float) -> None:
        """A request of it failed, and may have been the reason."""
        if not signature:
            return
        faults = self._faults.setdefault(signature, _Faults())
        self._faults.move_to_end(signature)
        faults.replicas[replica] = faults.last_s = now_s
        if len(self._faults) > self._capacity:
            self._faults.popitem(last=False)

    def answered(self, signature: str) -> None:
        """A request of it ended well: what it failed of was not its own doing."""
        self._faults.pop(signature, None)

    def distrusted(self, replica: str) -> None:
        """A replica was found to be sick: what failed there proves nothing."""
        for faults in self._faults.values():
            faults.replicas.pop(replica, None)

    def is_culprit(self, signature: str, replica: str, now_s: float) -> bool:
        """Whether it fails elsewhere too, so that its fault on `replica` is its own."""
        faults = self._faults.get(signature)
        if faults is None:
            return False
        since_s = now_s - self._window_s
        return any(at_s >= since_s and other != replica for other, at_s in faults.replicas.items())

    def forget_old(self, now_s: float) -> None:
        """Drop what has not faulted within the window."""
        while self._faults:
            signature = next(iter(self._faults))
            if self._faults[signature].last_s >= now_s - self._window_s:
                return
            del self._faults[signature]
