"""From a classified request to a pool: the first rule that matches, then the pool's spill chain.

Decisions are built once for each rule and pool of its chain, so deciding allocates nothing. Only where pools of a chain
can't take everything, or several compete for a request, is the request looked at again. Picking the replica is the
pool's part; why a rule matched is explanation.py.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gateway.hookcost.classification import Classification
from gateway.hookcost.features import Grammar
from gateway.routing.actions import Actions
from gateway.routing.capabilities import Lack
from gateway.routing.cheapest import cheapest_first
from gateway.routing.knowledge import NOTHING_KNOWN, Knowledge
from gateway.routing.matcher import compile_matcher
from gateway.routing.pool import Pool
from gateway.routing.request import RouteRequest
from gateway.routing.rule import Rule
from gateway.routing.settings import Reject, Spill

DEFAULT_RULE = "default"
"""Name of the rule that takes what no other rule took."""
POOL_NOT_ALLOWED = "pool_not_allowed"
"""Code of the answer to a request whose tenant may use no pool of its rule's chain."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The answer when no pool can take the request, or a rule says so.

    retry_after_s: goes into the header `Retry-After`; 0: there is none. param: the field of the body that is why.
    """

    status: int
    code: str
    message: str
    retry_after_s: int
    param: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Where a request goes: either `pool` is set, or `rejection`. The router has one object for each; compare by `is`.

    rule:         the rule that matched.
    spilled_from: the rule's own pool, where another one stands in for it. guest_of: the pool that had no room for it,
                  where it is a guest of another for that reason.
    quarantined_from: where it would have gone, had it not been quarantined.
    actions:      what the rule changes; None for most.
    """

    pool: Pool | None
    rule: str
    spilled_from: str | None = None
    rejection: Rejection | None = None
    quarantined_from: str | None = None
    actions: Actions | None = None
    guest_of: Pool | None = None


@dataclass(frozen=True, slots=True)
class _Route:
    """The decisions of one rule, by pool in the order of its chain.

    rivals: so many of the first pools compete, and the one with the cheapest grammar backend goes first.
    choosy: the request has to be looked at: there are rivals, or pools that can't take everything.
    """

    stages: tuple[tuple[Pool, Decision], ...]
    rejected: Decision
    rivals: int = 0
    choosy: bool = False


class Router:
    """The compiled rules over the pools. Immutable but for the replicas' state; a reload builds a new one.

    Raises ValueError where a rule, a spill or the default names a pool that does not exist, or spills form a cycle.
    """

    __slots__ = (
        "_first_match",
        "_guests",
        "_lacks",
        "_quarantine",
        "_quarantined",
        "_routes",
        "knows",
        "pools",
        "rules",
    )

    def __init__(
        self,
        rules: Iterable[Rule],
        pools: Mapping[str, Pool],
        default_pool: str,
        quarantine: str | None = None,
        knows: Knowledge = NOTHING_KNOWN,
    ) -> None:
        """`quarantine`: the name of the pool for what is quarantined; None: there is none.

        knows: what rules may ask of the past.
        """
        self.pools = pools
        self.knows = knows
        self._quarantine = None if quarantine is None else pools[quarantine]
        self._quarantined: dict[Decision, tuple[Decision, Decision]] = {}
        self._guests: dict[tuple[Decision, Pool], Decision] = {}
        self._lacks: dict[tuple[Lack, str], Decision] = {}
        """The answers to what no pool of a rule, or not quarantine, can take; filled as they are needed."""
        self.rules = (*rules, Rule(DEFAULT_RULE, default_pool))
        self._routes = tuple(_route(rule, pools) for rule in self.rules)
        self._first_match = compile_matcher(self.rules, knows)

    def decide(self, request: RouteRequest) -> Decision:
        """The decision for one request: first matching rule, first pool of its chain with an available replica.

        Pools that its tenant may not use are passed over.
        """
        return self.decided_by(self._first_match(request), request)

    def decided_by(self, rule: int, request: RouteRequest) -> Decision:
        """The decision for a request that the rule of this number takes; explanations have looked for it themselves."""
        route = self._routes[rule]
        if route.choosy or request.pools is not None:
            return self._chosen(route, request)
        for pool, decision in route.stages:
            if pool.is_available():
                return decision
        return route.rejected

    def has_quarantine(self) -> bool:
        """Whether there is a pool for what is quarantined."""
        return self._quarantine is not None

    def quarantined(self, decision: Decision, request: RouteRequest) -> Decision:
        """The decision for a request that is quarantined and would go where `decision` says."""
        pool = self._quarantine
        assert pool is not None
        assert decision.pool is not None
        if pool.capabilities is not None:
            lack = pool.capabilities.lack(request.classification)
            if lack is not None:
                return self._lacking(lack, decision.rule)
        both = self._quarantined.get(decision)
        if both is None:
            origin = decision.pool.name
            actions = decision.actions
            taken = Decision(pool, decision.rule, quarantined_from=origin, actions=actions)
            rejected = Decision(None, decision.rule, rejection=_rejection((pool,)), quarantined_from=origin)
            both = self._quarantined[decision] = (taken, rejected)
        return both[0] if pool.is_available() else both[1]

    def as_guest(self, decision: Decision, host: Pool) -> Decision:
        """The decision for a request for which the pool of another decision has no room, and `host` has."""
        known = self._guests.get((decision, host))
        if known is None:
            assert decision.pool is not None
            origin = decision.spilled_from or decision.pool.name
            known = self._guests[decision, host] = Decision(
                host, decision.rule, spilled_from=origin, actions=decision.actions, guest_of=decision.pool
            )
        return known

    def _chosen(self, route: _Route, request: RouteRequest) -> Decision:
        """The decision where it hangs on the request which pool may take it, and which of several goes first."""
        classification = request.classification
        stages = route.stages
        if route.rivals:
            decisions = dict(stages)
            rivals = cheapest_first([pool for pool, _ in stages[: route.rivals]], classification)
            stages = (*[(pool, decisions[pool]) for pool in rivals], *stages[route.rivals :])
        allowed = request.pools
        if allowed is not None and stages:
            own = stages[0][0].name
            stages = tuple([stage for stage in stages if stage[0].name in allowed])
            if not stages:
                return self._lacking(_not_allowed(own), route.rejected.rule)
        lack: Lack | None = None
        able = False
        for pool, decision in stages:
            capabilities = pool.capabilities
            lacking = None if capabilities is None else capabilities.lack(classification)
            if lacking is not None:
                lack = lack or lacking
            elif pool.is_available():
                return decision
            else:
                able = True
        if able or lack is None:
            return route.rejected
        return self._lacking(lack, route.rejected.rule)

    def _lacking(self, lack: Lack, rule: str) -> Decision:
        known = self._lacks.get((lack, rule))
        if known is None:
            rejection = Rejection(lack.status, lack.code, lack.message, 0, lack.param)
            known = self._lacks[lack, rule] = Decision(None, rule, rejection=rejection)
        return known


def _not_allowed(pool: str) -> Lack:
    return Lack(403, POOL_NOT_ALLOWED, f"this key may send nothing that goes to pool {pool!r}", None)


def _route(rule: Rule, pools: Mapping[str, Pool]) -> _Route:
    if rule.pool is None:
        refuse = rule.refuse
        assert refuse is not None
        rejection = Rejection(refuse.status, "rejected_by_rule", refuse.message, refuse.retry_after_s)
        return _Route((), Decision(None, rule.name, rejection=rejection, actions=rule.actions))
    rivals = rule.cheapest or (rule.pool,)
    chain = _chain(rule.pool, (*rule.cheapest, *rule.fallbacks), pools)
    stages = tuple(
        (
            pool,
            Decision(pool, rule.name, spilled_from=None if pool.name in rivals else rule.pool, actions=rule.actions),
        )
        for pool in chain
    )
    return _Route(
        stages,
        Decision(None, rule.name, rejection=_rejection(chain)),
        rivals=len(rule.cheapest),
        choosy=bool(rule.cheapest) or any(pool.capabilities is not None for pool in chain),
    )


def _chain(name: str, fallbacks: tuple[str, ...], pools: Mapping[str, Pool]) -> tuple[Pool, ...]:
    """The pools that a rule's requests may go to: its own, its fallbacks, then where its own spills to."""
    first, *spills = _spill_chain(name, pools, _when_unavailable)
    chain = [first]
    for fallback in fallbacks:
        if fallback not in pools:
            raise ValueError(f"no pool is named {fallback!r}")
        if pools[fallback] not in chain:
            chain.append(pools[fallback])
    chain += [pool for pool in spills if pool not in chain]
    return tuple(chain)


def overflow_of(name: str, pools: Mapping[str, Pool]) -> tuple[Pool, ...]:
    """The pools that take what a pool has no room for, in order.

    Raises ValueError where one that is named does not exist, or they form a cycle.
    """
    return _spill_chain(name, pools, _when_full)[1:]


def welcomes(host: Pool, pool: Pool, classification: Classification, allowed: frozenset[str] | None) -> bool:
    """Whether a pool may take a request of another one's as a guest, as far as its room goes.

    Not what its replicas can't do, nor has a grammar that costs something else there. `allowed`: the pools that its
    tenant may use; None: any.
    """
    return (
        (host.backend == pool.backend or classification.features.grammar is Grammar.none)
        and (host.capabilities is None or host.capabilities.lack(classification) is None)
        and (allowed is None or host.name in allowed)
    )


def _when_unavailable(pool: Pool) -> Reject | Spill | None:
    return pool.when_unavailable


def _when_full(pool: Pool) -> Reject | Spill | None:
    return pool.when_full


def _spill_chain(
    name: str, pools: Mapping[str, Pool], spill_of: Callable[[Pool], Reject | Spill | None]
) -> tuple[Pool, ...]:
    chain: list[Pool] = []
    while True:
        if name not in pools:
            raise ValueError(f"no pool is named {name!r}")
        pool = pools[name]
        if pool in chain:
            raise ValueError(f"the spills of pool {chain[0].name!r} come back to {name!r}")
        chain.append(pool)
        spill = spill_of(pool)
        if not isinstance(spill, Spill):
            return tuple(chain)
        name = spill.pool


def _rejection(chain: tuple[Pool, ...]) -> Rejection:
    first, *others = (repr(pool.name) for pool in chain)
    message = f"no replica of pool {first} is available"
    if others:
        message += f", nor of {', '.join(others)} that would stand in for it"
    last = chain[-1].when_unavailable
    return Rejection(503, "pool_unavailable", message, last.retry_after_s if isinstance(last, Reject) else 1)
