"""The pools and replicas there are now, and everything that goes with each: who joins, who leaves, who runs empty.

Owns what changes while the gateway runs: pools with their queues and breakers, replicas with their connections, health
checks and senses. Three have a say in who is of a pool: the file, discovery, and people by the API. Knows no rule; who
decides by the pools is told when they have changed. One event loop; long work is done in short turns, so that no
request waits for it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import cast

import structlog

from gateway.breaker.replica import ReplicaBreaker
from gateway.breaker.replicastates import ReplicaTransition
from gateway.call import Link, Terms
from gateway.control.assembly import build_pool, build_replica, build_target, pool_settings
from gateway.control.config import Config, PoolConfig, ReplicaConfig
from gateway.control.inturns import Pace, giving_way
from gateway.control.membership import MembershipError, Source
from gateway.feed.health import HealthMonitor, HealthPolicy
from gateway.feed.reach import Reach
from gateway.feed.senses import Senses
from gateway.feed.target import Target
from gateway.oversight import Oversight
from gateway.routing.admission import AdmissionPolicy, AdmissionQueue
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import overflow_of
from gateway.tenants.keys import authorization
from gateway.wire.upstream import Upstream

log = structlog.get_logger("steplane.fleet")

_STAND_IN_S = 5.0
"""How long a change waits for the first health checks of those that join, where they are all that is left of a pool."""
_ASKED = 20
"""Of so many of them."""

_SOURCES: tuple[Source, ...] = ("file", "discovered", "added")
"""Who names replicas; where two name one, the first has it its way."""


class Fleet:
    """See the module. A `control.membership.Membership`.

    pools, terms, queues, breakers: by the name of the pool. links: by replica. upstreams: by the replica's name.
    connections: all upstreams, for whoever closes what idles there. All of them change in place.
    """

    def __init__(
        self,
        config: Config,
        oversight: Oversight,
        senses: Senses,
        connect: Callable[[Replica, Config], Upstream],
        reach: Reach | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Builds what `config` names; nothing is asked before `start`. `connect` makes a replica's connections.

        reach: the ways to replicas that `connect` tells of. clock: gives seconds; the loop's own unless said otherwise.
        """
        self.config = config
        self.pools: dict[str, Pool] = {}
        self.terms: dict[str, Terms] = {}
        self.queues: dict[str, AdmissionQueue] = {}
        self.breakers: dict[str, ReplicaBreaker] = {}
        self.links: dict[Replica, Link] = {}
        self.upstreams: dict[str, Upstream] = {}
        self.connections: set[Upstream] = set()
        self.left: Callable[[Replica], None] = _nobody
        """Is told of each replica that leaves."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self.health = HealthMonitor((), clock=self._clock, last_progress=self._last_read_at, reach=reach)
        self._oversight = oversight
        self._senses = senses
        self._connect = connect
        self._changing = asyncio.Lock()
        self._replicas: dict[str, Replica] = {}
        self._named: dict[Source, dict[str, dict[str, ReplicaConfig]]] = {source: {} for source in _SOURCES}
        """By source and pool: who is named, by name."""
        self._drained: set[str] = set()
        self._removed: set[str] = set()
        """Names that people have drained or removed: that holds as long as somebody names them."""
        self._watching = False
        self._name_from(config)
        for name, part in config.pools.items():
            terms = self._open(name, config)
            self._take_in(terms)
            for each in part.replicas:
                self._join(terms, each, config)
        self._join_overflows()

    async def start(self) -> None:
        """Begin to watch the replicas; returns at once."""
        await self._senses.start(self._targets())
        self._watching = True
        for replica, link in self.links.items():
            link.itl = self._senses.itl(replica.name)
        await self.health.start()

    async def close(self) -> None:
        """Stop watching."""
        await self.health.close()
        await self._senses.close()

    # --- who is there

    def replica(self, name: str) -> Replica | None:
        """The replica of that name."""
        return self._replicas.get(name)

    def engine_ended(self, name: str) -> None:
        """The engine of the replica of that name has ended, and may have been started anew already."""
        replica = self._replicas.get(name)
        if replica is not None:
            self.health.report_ended(replica)

    def source(self, replica: Replica) -> Source:
        """Who names a replica."""
        for source in _SOURCES:
            if replica.name in self._named[source].get(replica.pool, {}):
                return source
        return "added"

    # --- changes

    async def apply(
        self, config: Config, prepare: Callable[[Mapping[str, Pool]], Awaitable[Callable[[], None]]]
    ) -> None:
        """Become what a new configuration says.

        What is new joins and is asked whether it is well, and pools take their new settings; `prepare` compiles the
        rules over them and returns what has requests decided by these, all at once; then what is gone leaves. What runs
        is finished where it runs, and what is known of a replica that stays is kept.
        """
        async with self._changing:
            before = self.config
            self._name_from(config)
            opened = {name: self._open(name, config) for name in config.pools if name not in self.pools}
            joined: set[Replica] = set()
            async for name, each in self._missing(config):
                joined.add(self._join(opened.get(name) or self.terms[name], each, config))
            pools = {name: opened[name].pool if name in opened else self.pools[name] for name in config.pools}
            surplus = await self._surplus(config)
            await self._await_stand_ins(joined, surplus)
            async for name, part in giving_way(config.pools.items()):
                self._reconfigure(opened.get(name) or self.terms[name], part, config)
            decide = await prepare(pools)
            self.config = config
            for terms in opened.values():
                self._take_in(terms)
            gone = [self.pools.pop(name) for name in list(self.pools) if name not in config.pools]
            self._join_overflows()
            decide()
            for pool in gone:
                self._let_go(pool)
            async for replica in giving_way(surplus):
                self._leave(replica)
            async for link in giving_way(list(self.links.values())):
                self._follow(link, before)

    async def discovered(self, pool: str, members: Mapping[str, ReplicaConfig]) -> None:
        """These are what discovery has found for a pool, by name."""
        async with self._changing:
            if pool in self.pools:
                self._named["discovered"][pool] = dict(members)
                await self._even_out(pool)

    async def add(self, pool: str, wanted: ReplicaConfig) -> Replica:
        """One more replica, by hand, or one again that was removed by hand. Raises MembershipError."""
        async with self._changing:
            if pool not in self.pools:
                raise MembershipError("unknown_pool", f"there is no pool {pool!r}, only {', '.join(self.pools)}")
            for each in self._replicas.values():
                if each.name == wanted.label or each.url == str(wanted.url):
                    said = f"{each.name} at {each.url} is in pool {each.pool} already: name and URL must be new"
                    raise MembershipError("replica_exists", said)
            self._removed.discard(wanted.label)
            if wanted.label not in self._wanted(pool):
                self._named["added"].setdefault(pool, {})[wanted.label] = wanted
            await self._even_out(pool)
            return self._replicas[wanted.label]

    async def remove(self, name: str) -> Replica:
        """Take a replica out, by hand: nothing new is sent there, what runs is finished. Raises MembershipError."""
        async with self._changing:
            replica = self._expect(name)
            self._named["added"].get(replica.pool, {}).pop(name, None)
            if name in self._wanted(replica.pool):  # somebody else names it, too
                self._removed.add(name)
            self._drained.discard(name)
            self._leave(replica)
            return replica

    def drain(self, name: str) -> Replica:
        """Send nothing new to a replica; what runs there is finished. Raises MembershipError."""
        replica = self._expect(name)
        self._drained.add(name)
        replica.drain()
        return replica

    def undrain(self, name: str) -> Replica:
        """Send requests to a replica again. Raises MembershipError."""
        replica = self._expect(name)
        self._drained.discard(name)
        replica.undrain()
        return replica

    def _expect(self, name: str) -> Replica:
        replica = self._replicas.get(name)
        if replica is None:
            raise MembershipError("unknown_replica", f"there is no replica {name!r}; GET /api/v1/replicas lists them")
        return replica

    # --- who should be there

    def _name_from(self, config: Config) -> None:
        self._named["file"] = {
            name: {each.label: each for each in part.replicas} for name, part in config.pools.items()
        }
        for name, part in config.pools.items():
            if part.discover is None:
                self._named["discovered"].pop(name, None)
        for by_pool in self._named.values():
            for name in [name for name in by_pool if name not in config.pools]:
                del by_pool[name]
        named = {label for by_pool in self._named.values() for members in by_pool.values() for label in members}
        self._removed &= named
        self._drained &= named

    def _wanted(self, pool: str) -> dict[str, ReplicaConfig]:
        """Who should be of a pool, by name; the same address is the same replica, whoever names it."""
        wanted: dict[str, ReplicaConfig] = {}
        addresses: set[str] = set()
        for source in _SOURCES:
            for label, each in self._named[source].get(pool, {}).items():
                url = str(each.url)
                if label not in wanted and label not in self._removed and url not in addresses:
                    wanted[label] = each
                    addresses.add(url)
        return wanted

    async def _missing(self, config: Config) -> AsyncIterator[tuple[str, ReplicaConfig]]:
        """Who should join, with the pool's name; looked for in turns."""
        pace = Pace()
        taken: dict[str, str] = {}
        for name, part in config.pools.items():
            async for label, each in giving_way(self._wanted(name).items(), pace):
                first = taken.setdefault(label, name)
                present = self._replicas.get(label)
                if first != name:
                    log.error("replica_name_taken", replica=label, pool=name, taken_by=first)
                elif present is None or present.pool != name or not _is_same(present, each, part):
                    yield name, each

    async def _surplus(self, config: Config) -> list[Replica]:
        """Who should leave: not wanted, or followed by another of its name; looked for in turns."""
        wanted: dict[str, dict[str, ReplicaConfig]] = {}
        async for name in giving_way(config.pools):
            wanted[name] = self._wanted(name)
        links = giving_way(list(self.links))
        return [replica async for replica in links if self._is_surplus(replica, wanted.get(replica.pool, {}))]

    def _is_surplus(self, replica: Replica, wanted: Mapping[str, ReplicaConfig]) -> bool:
        return self._replicas.get(replica.name) is not replica or replica.name not in wanted

    async def _even_out(self, name: str) -> None:
        """Let those join and leave a pool who should."""
        part = self.config.pools[name]
        joined: set[Replica] = set()
        wanted = self._wanted(name)
        async for label, each in giving_way(list(wanted.items())):
            present = self._replicas.get(label)
            if present is not None and present.pool != name:
                log.error("replica_name_taken", replica=label, pool=name, taken_by=present.pool)
            elif present is None or not _is_same(present, each, part):
                joined.add(self._join(self.terms[name], each, self.config))
        self.pools[name].rebalance(self._peopled(name, part).plan)
        surplus = [each for each in self.links if each.pool == name and self._is_surplus(each, wanted)]
        await self._await_stand_ins(joined, surplus)
        async for replica in giving_way(surplus):
            self._leave(replica)

    async def _await_stand_ins(self, joined: set[Replica], leaving: Sequence[Replica]) -> None:
        """Give those that join a pool time to be found well, where nobody else would be left of it."""
        if not self._watching:
            return
        not_counted = joined.union(leaving)
        served = {each.pool for each in self.links if each.available and each not in not_counted}
        fresh: dict[str, list[Replica]] = {}
        for each in joined:
            if each.pool not in served:
                fresh.setdefault(each.pool, []).append(each)
        await asyncio.gather(*[self.health.wait_any_up(some[:_ASKED], _STAND_IN_S) for some in fresh.values()])

    # --- one at a time

    def _open(self, name: str, config: Config) -> Terms:
        """The terms of a pool of that name, without replicas, that nobody knows yet."""
        part = config.pools[name]
        pool = build_pool(name, part)

        def changed(transition: ReplicaTransition) -> None:
            self._oversight.replica_changed(self._replicas[transition.replica], transition)

        def is_up(replica: str) -> bool:
            return self._replicas[replica].healthy

        ejection = part.ejection.policy()
        breaker = ReplicaBreaker(name, (), ejection, clock=self._clock, notify=changed, is_up=is_up)
        pool.on_trial = lambda replica: breaker.trial_began(replica.name)
        queue = AdmissionQueue(pool, _admission(part), clock=self._clock, call_at=self._loop.call_at)
        breaks = part.breaker
        terms = Terms(pool, queue, breaker, part.hard_limit, breaks.on_open, breaks.on_trip, quarantine=False)
        _set_terms(terms, part, config)
        return terms

    def _take_in(self, terms: Terms) -> None:
        name = terms.pool.name
        self.pools[name] = terms.pool
        self.terms[name] = terms
        self.queues[name] = terms.queue
        self.breakers[name] = terms.breaker

    def _join_overflows(self) -> None:
        """Let queues know which other pools take what there is no room for."""
        for queue in self.queues.values():
            hosts = overflow_of(queue.pool.name, self.pools) if queue.pool.name in self.pools else ()
            queue.overflow_to(tuple([self.queues[host.name] for host in hosts]))

    def _reconfigure(self, terms: Terms, part: PoolConfig, config: Config) -> None:
        terms.queue.policy = _admission(part)
        terms.breaker.reconfigure(part.ejection.policy())
        _set_terms(terms, part, config)
        terms.pool.reconfigure(pool_settings(self._peopled(terms.pool.name, part)))

    def _peopled(self, name: str, part: PoolConfig) -> PoolConfig:
        """What is configured of a pool, with all members, whoever names them: its balancer depends on their weights."""
        return part.model_copy(update={"replicas": [*self._wanted(name).values()]})

    def _let_go(self, pool: Pool) -> None:
        """A pool is gone: who waits for it is sent where the new rules say."""
        del self.terms[pool.name], self.breakers[pool.name]
        self.queues.pop(pool.name).close()

    def _join(self, terms: Terms, wanted: ReplicaConfig, config: Config) -> Replica:
        """A replica joins a pool, in the place of one of its name. It takes requests once it was found to be well."""
        name = terms.pool.name
        replica = build_replica(name, config.pools[name], wanted)
        upstream = self._connect(replica, config)  # first: it may fail
        self._replicas[replica.name] = replica
        terms.breaker.add(replica.name)
        link = self.links[replica] = Link(replica, upstream, terms)
        self.upstreams[replica.name] = upstream
        self.connections.add(upstream)
        if replica.name in self._drained:
            replica.drain()
        terms.pool.add(replica)
        self._oversight.add(link)
        if self._watching:
            self._senses.add(build_target(config, name, wanted))
            link.itl = self._senses.itl(replica.name)
        self.health.add(replica, _health(config.pools[name]))
        return replica

    def _leave(self, replica: Replica) -> None:
        """A replica leaves its pool: what runs there goes on, and is not judged any more."""
        link = self.links.pop(replica)
        self.left(replica)
        link.terms.pool.remove(replica)
        self.health.remove(replica)
        self._oversight.remove(replica)
        self.connections.discard(link.upstream)
        link.upstream.close()
        follower = self._replicas.get(replica.name)
        if follower is replica:
            del self._replicas[replica.name], self.upstreams[replica.name]
            self._senses.remove(replica.name)
        if follower is replica or (follower is not None and follower.pool != replica.pool):
            link.terms.breaker.remove(replica.name)

    def _follow(self, link: Link, before: Config) -> None:
        """Treat a replica that has stayed as the configuration now says."""
        replica, config = link.replica, self.config
        part = config.pools[replica.pool]
        self.health.reconfigure(replica, _health(part))
        wanted = self._wanted_of(replica)
        if wanted is not None:
            replica.weight = wanted.weight
            self._senses.add(build_target(config, replica.pool, wanted))
            link.itl = self._senses.itl(replica.name)
        if _connects_otherwise(before, config, replica.pool):
            old = link.upstream
            link.upstream = self.upstreams[replica.name] = self._connect(replica, config)
            self.connections.add(link.upstream)
            self.connections.discard(old)
            old.close()

    def _wanted_of(self, replica: Replica) -> ReplicaConfig | None:
        for source in _SOURCES:
            wanted = self._named[source].get(replica.pool, {}).get(replica.name)
            if wanted is not None:
                return wanted
        return None

    def _targets(self) -> Iterator[Target]:
        for replica in self.links:
            wanted = self._wanted_of(replica)
            if wanted is not None:
                yield build_target(self.config, replica.pool, wanted)

    def _last_read_at(self, target: object) -> float:
        return self.links[cast(Replica, target)].last_read_at


def _set_terms(terms: Terms, part: PoolConfig, config: Config) -> None:
    terms.hard_limit_us = part.hard_limit
    terms.on_open = part.breaker.on_open
    terms.on_trip = part.breaker.on_trip
    terms.quarantine = terms.pool.name == config.quarantine_pool
    terms.credentials = authorization(part.api_key)


def _is_same(replica: Replica, wanted: ReplicaConfig, part: PoolConfig) -> bool:
    """Whether a replica that runs is the one that is wanted."""
    return replica.url == str(wanted.url) and replica.engine == part.engine and replica.zone == wanted.zone


def _connects_otherwise(before: Config, after: Config, pool: str) -> bool:
    """Whether connections to a pool's replicas are made by other settings than before."""
    if pool not in before.pools:
        return False
    return before.timeouts != after.timeouts or before.pools[pool].upstream != after.pools[pool].upstream


def _nobody(replica: Replica) -> None:
    """Nobody wants to know."""


def _admission(part: PoolConfig) -> AdmissionPolicy:
    return AdmissionPolicy(queue=part.admission.queue, max_wait_s=part.admission.max_wait_s)


def _health(part: PoolConfig) -> HealthPolicy:
    return HealthPolicy(**part.health.model_dump(), model=part.model)
