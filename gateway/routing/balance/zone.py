"""Replicas near the gateway first: traffic between zones is slower, and billed."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.routing.balance.ask import Ask
from gateway.routing.balance.ring import bounds
from gateway.routing.replica import Replica


@dataclass(frozen=True, slots=True)
class ZoneAware:
    """Keeps to the gateway's own zone while its replicas have not more than `bound` times their share of the pool's
    load, and `floor` requests at least; beyond that, all zones count alike.
    """

    zone: str
    bound: float = 1.5
    floor: int = 4

    def build(self) -> "ZoneAware":
        """Itself: nothing is remembered."""
        return self

    def narrow(self, _ask: Ask, candidates: Sequence[Replica], /) -> Sequence[Replica]:
        """See `Filter`."""
        near = [each for each in candidates if each.zone == self.zone]
        if not near or len(near) == len(candidates):
            return candidates
        takes = bounds(candidates, self.bound, self.floor)
        return [each for each in near if takes(each)] or candidates
