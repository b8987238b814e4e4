"""All tenants: who holds which key, what each may do, and what each has left.

Other gateways spend from the same limits: what is used here is collected under the name of a span of time, and what
they have used is charged here, a second or so later. Nothing is asked of anybody while a request waits.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping

from gateway.tenants.allowance import Allowance, Resource
from gateway.tenants.keys import bare, digest
from gateway.tenants.profile import Profile

KEY_KIND = "tenant_key"
"""Records of the store: under the digest of a key, whose it is; nothing if it was taken back."""
SPENT_KIND = "spent"
"""Counters of the store in which gateways tell each other what was used."""
_KEY_HEADERS = (b"authorization", b"x-api-key")
_LONGEST_NAME = 128
_MOST_UNNAMED = 10_000
"""Tenants without a profile of their own that are remembered; the least recently seen is forgotten first."""
_RESOURCES = {resource.value: resource for resource in Resource}
_SPAN_S = 10
"""What is spent is shared under the number of such a span of the wall clock: what is older is of no interest."""


class Register:
    """See the module.

    header:      a lower-case name; what it says is the tenant. A proxy in front must set it, for a client could say
                 anything.
    require_key: a request without a known key has no tenant, and is to be refused.
    named:       profiles by tenant. unnamed: of all others.
    keys:        tenant by the digest of its key.

    Without a header and without a known key, the tenant is a short digest of the key, and "" without one.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        wall: Callable[[], float],
        *,
        header: str | None = None,
        require_key: bool = False,
        named: Mapping[str, Profile] | None = None,
        unnamed: Profile | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """`clock` is monotonic, `wall` the time of day, both in seconds."""
        self._clock = clock
        self._wall = wall
        self._allowances: OrderedDict[str, Allowance] = OrderedDict()
        self._spent: dict[str, dict[Resource, float]] = {}
        self._stored_keys: dict[str, str] = {}
        self.epoch = 0
        """Grows whenever a head may have become another tenant's."""
        self.holds_keys = False
        """Clients' keys are ours, and not the engines' business."""
        self.configure(header=header, require_key=require_key, named=named, unnamed=unnamed, keys=keys)

    def configure(
        self,
        *,
        header: str | None = None,
        require_key: bool = False,
        named: Mapping[str, Profile] | None = None,
        unnamed: Profile | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Take another configuration; what tenants owe stays owed. Keys from the store stay."""
        self._header = header.lower().encode() if header is not None else b""
        self.require_key = require_key
        self._named = dict(named or {})
        self._unnamed = unnamed or Profile()
        self._keys = dict(keys or {})
        self._keys_changed()
        now_s = self._clock()
        for name in list(self._allowances):
            limits = self.profile(name).limits
            if limits:
                self._allowances[name].reconfigure(limits, now_s)
            else:
                del self._allowances[name]

    @property
    def restricts(self) -> bool:
        """Whether any tenant may be refused anything: if not, nobody need ask."""
        profiles = (self._unnamed, *self._named.values())
        return self.require_key or any(
            profile.limits or profile.models is not None or profile.pools is not None for profile in profiles
        )

    # --- who

    def of(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The tenant that these header fields name; "" if they name none, or an unknown key where one is required."""
        key = b""
        for name, value in headers:
            lower = name.lower()
            if lower == self._header and value:
                return value[:_LONGEST_NAME].decode("latin-1")
            if lower in _KEY_HEADERS and value:
                key = bare(value)
        if not key:
            return ""
        known = digest(key)
        tenant = self._keys.get(known) or self._stored_keys.get(known)
        if tenant is not None:
            return tenant
        return "" if self.require_key else f"key-{known.removeprefix('sha256:')[:16]}"

    def key_stored(self, key_digest: str, tenant: str) -> None:
        """A key that all gateways share was given to `tenant`; "" takes it back."""
        if tenant:
            self._stored_keys[key_digest] = tenant
        else:
            self._stored_keys.pop(key_digest, None)
        self._keys_changed()

    def stored_owner(self, key_digest: str) -> str | None:
        """Whose a shared key is."""
        return self._stored_keys.get(key_digest)

    def key_counts(self) -> Counter[str]:
        """How many keys each tenant holds."""
        return Counter([*self._keys.values(), *self._stored_keys.values()])

    # --- what it may do

    def is_named(self, tenant: str) -> bool:
        """Whether the configuration names it."""
        return tenant in self._named

    def names(self) -> list[str]:
        """The named tenants, and the others that were seen and are limited."""
        return [*self._named, *(name for name in self._allowances if name not in self._named)]

    def profile(self, tenant: str) -> Profile:
        """The rights of a tenant."""
        return self._named.get(tenant, self._unnamed)

    def allowance(self, tenant: str) -> Allowance | None:
        """What a tenant has left; None where nothing is limited."""
        limits = self.profile(tenant).limits
        if not limits:
            return None
        allowance = self._allowances.get(tenant)
        if allowance is None:
            allowance = self._allowances[tenant] = Allowance(limits, self._clock())
            if len(self._allowances) > _MOST_UNNAMED + len(self._named):
                self._allowances.popitem(last=False)
        else:
            self._allowances.move_to_end(tenant)
        return allowance

    def known_allowance(self, tenant: str) -> Allowance | None:
        """Its allowance if it has used any of it; asking makes none."""
        return self._allowances.get(tenant)

    def used(self, tenant: str, resource: Resource, amount: float) -> None:
        """Note for the other gateways what was taken here; `Allowance` is told by whoever takes."""
        spent = self._spent.setdefault(tenant, {})
        spent[resource] = spent.get(resource, 0.0) + amount

    # --- with other gateways

    def export(self) -> dict[str, dict[str, float]]:
        """What was used here since the last call, by the keys under which it is shared."""
        span = int(self._wall() // _SPAN_S)
        spent, self._spent = self._spent, {}
        return {
            f"{span}:{tenant}": {resource.value: amount for resource, amount in amounts.items()}
            for tenant, amounts in spent.items()
        }

    def merge(self, key: str, amounts: Mapping[str, float]) -> None:
        """Charge what other gateways have used; what was used long ago has been paid off meanwhile."""
        span, _, tenant = key.partition(":")
        if not span.isdecimal() or int(span) < self._wall() // _SPAN_S - 1:
            return
        allowance = self.allowance(tenant)
        if allowance is not None:
            known = {_RESOURCES[name]: amount for name, amount in amounts.items() if name in _RESOURCES}
            allowance.spend(known, self._clock())

    # --- inside

    def _keys_changed(self) -> None:
        self.epoch += 1
        self.holds_keys = bool(self._keys or self._stored_keys or self.require_key)
