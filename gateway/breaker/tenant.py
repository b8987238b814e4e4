"""How many different signatures of a tenant tripped lately: the evidence against tenants."""

from collections import OrderedDict

from gateway.breaker.policy import Escalation

_TENANTS = 10_000


class TenantTrips:
    """Trips by tenant and signature, with wall-clock times, since those of other gateways count, too.

    Bounded: of more than 10,000 tenants the one whose last trip is longest ago is forgotten; of a tenant the newest
    trips are kept, as many as are needed.
    """

    def __init__(self, policy: Escalation) -> None:
        self._policy = policy
        self._by_tenant: OrderedDict[str, dict[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_tenant)

    def reconfigure(self, policy: Escalation) -> None:
        """Judge by other limits; the trips that were kept stay."""
        self._policy = policy

    def add(self, tenant: str, signature: str, at: float) -> bool:
        """Note a trip; True when there are enough within the window. A tenant without a name is nobody: never."""
        if not tenant:
            return False
        trips = self._by_tenant.setdefault(tenant, {})
        self._by_tenant.move_to_end(tenant)
        if len(self._by_tenant) > _TENANTS:
            self._by_tenant.popitem(last=False)
        trips[signature] = max(at, trips.get(signature, at))
        newest = sorted(trips, key=trips.__getitem__)[-self._policy.signatures :]
        self._by_tenant[tenant] = trips = {name: trips[name] for name in newest}
        oldest, latest = trips[newest[0]], trips[newest[-1]]
        return len(trips) >= self._policy.signatures and latest - oldest <= self._policy.window_s

    def forget(self, tenant: str) -> None:
        """Begin anew: its breaker has opened, or was released."""
        self._by_tenant.pop(tenant, None)
