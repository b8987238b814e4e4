"""A share of what matches a rule (`weight`): the same requests each time, or by turns.

Sticky: a tenant, or whoever has the same value in a header, is always in or always out, at every gateway, for the
share is cut from a digest. By turns: a sequence that keeps to the share over any short stretch, and costs no digest.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from gateway.routing.request import RouteRequest

_WHOLE: Final = 1 << 32
_STRIDE: Final = 2_654_435_769
"""2³² through the golden ratio: its multiples fill the circle more evenly than those of any other number."""


class Share:
    """See the module.

    name:    of the rule; two rules with the same share take different tenants.
    percent: 0 to 100.
    sticky:  reads what a request is sticky by; None, or None read: by turns.
    """

    __slots__ = ("_at", "_limit", "_name", "_sticky")

    def __init__(self, name: str, percent: float, sticky: Callable[[RouteRequest], str | None] | None = None) -> None:
        self._name = name.encode()
        self._limit = round(percent / 100.0 * _WHOLE)
        self._sticky = sticky
        self._at = 0

    def __call__(self, request: RouteRequest) -> bool:
        """Whether the request is in; where it goes by turns it takes one, once, however often it is asked for."""
        place = self._place(request)
        if place >= 0:
            return place < self._limit
        turns = request.turns
        if turns is None:
            turns = request.turns = {}
        taken = turns.get(self)
        if taken is None:
            taken = turns[self] = self.turn()
        return taken

    def turn(self) -> bool:
        """Whether the next one by turns is in."""
        self._at = (self._at + _STRIDE) % _WHOLE
        return self._at < self._limit

    def peek(self, request: RouteRequest) -> bool:
        """What a call would say; takes no turn."""
        if request.turns is not None and self in request.turns:
            return request.turns[self]
        place = self._place(request)
        return (place if place >= 0 else (self._at + _STRIDE) % _WHOLE) < self._limit

    def place(self, request: RouteRequest) -> str:
        """For people: where the request lies, in percent, or that it goes by turns."""
        place = self._place(request)
        return "by turns" if place < 0 else f"at {place * 100.0 / _WHOLE:.2f} %"

    def _place(self, request: RouteRequest) -> int:
        """Where on the circle a sticky request lies, -1 where it goes by turns."""
        value = None if self._sticky is None else self._sticky(request)
        if not value:
            return -1
        digest = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=4, key=self._name[:64]).digest()
        return int.from_bytes(digest)
