"""Has requests looked at of whose kind people see the cost, and nobody knows yet what they look like.

Only while somebody asks, and only until each kind has been seen once: in between nothing of this is in the way of a
request. Describing them is control/dashboard/portraits.py's.
"""

from collections.abc import Callable, Iterable

from gateway.control.dashboard.portraits import Portraits
from gateway.hookcost import Classification
from gateway.proxy import Proxy

_FOR_S = 10.0
"""Whoever looks on asks again before that."""


class Sitters:
    """Of one gateway. `clock`: monotonic, in seconds."""

    def __init__(self, proxy: Proxy, portraits: Portraits, clock: Callable[[], float]) -> None:
        self._proxy = proxy
        self._portraits = portraits
        self._clock = clock
        self._wanted: set[str] = set()
        self._until_s = 0.0

    def want(self, signatures: Iterable[str]) -> None:
        """Have the next request of each of these looked at, for the next seconds; those named before no more."""
        self._wanted = set(signatures)
        self._until_s = self._clock() + _FOR_S
        self._proxy.look_at(self._look if self._wanted else None)

    def _look(self, classification: Classification, path: str, body: bytes) -> None:
        if classification.signature in self._wanted:
            self._portraits.seen(classification, path, body)
            self._wanted.discard(classification.signature)
        if not self._wanted or self._clock() > self._until_s:
            self._proxy.look_at(None)
