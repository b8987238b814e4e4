"""What the page shows of one gateway, as one document of sections and items: made once a second for all who watch.

Times are seconds of the wall clock, so that an item stays the same while nothing happens to it: only what has changed
is sent. Reads the parts of the gateway; owns the words of the page and no state but since when something is wrong.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from gateway import __version__
from gateway.control.context import AdminContext
from gateway.control.dashboard import findings
from gateway.control.dashboard.configuration import loaded_item, rule_items
from gateway.control.dashboard.findings import Finding, Findings
from gateway.control.dashboard.offenders import Offenders
from gateway.control.dashboard.pools import pool_item
from gateway.control.dashboard.replicas import Replicas
from gateway.control.inturns import Pace, giving_way

Document = dict[str, dict[str, Any]]
"""Items by section and key."""


class Overview:
    """Of one gateway. Belongs to its event loop."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._findings = Findings()
        self._replicas = Replicas(context)
        self._offenders = Offenders(context)

    async def compose(self) -> Document:
        """The document as of now; made in turns, since the loop carries requests, too."""
        pools, replicas = await self._members()
        offenders = await self._offenders.items()
        configuration = {"loaded": loaded_item(self._context)}
        return {
            "gateway": {"about": self._about()},
            "status": {"line": self._line(pools, replicas, offenders, configuration["loaded"])},
            "pools": pools,
            "replicas": replicas,
            "offenders": offenders,
            "configuration": configuration,
            "rules": await rule_items(self._context),
        }

    async def look(self) -> None:
        """Notice what has gone wrong while nobody watches: whoever comes later wants to know since when."""
        pools, replicas = await self._members()
        self._line(pools, replicas, {}, loaded_item(self._context))

    async def _members(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """All pools and replicas, by name."""
        self._replicas.begin()
        pools: dict[str, Any] = {}
        replicas: dict[str, Any] = {}
        context = self._context
        pace = Pace()
        errors: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for (_, name, kind), count in context.tally.upstream_errors.items():
            errors[name][kind] = count
        async for name, pool in giving_way(list(context.router.pools.items()), pace):
            if name not in context.queues:  # it has gone since the turn before, as replicas may have below
                continue
            breakers = {str(each["replica"]): each for each in context.breakers[name].snapshot()}
            async for replica in giving_way(pool.replicas, pace):
                if replica.name in breakers and not replica.retired:
                    label = replica.name
                    replicas[label] = self._replicas.item(
                        pool, replica, breakers[label], context.senses.status_of(label), errors.get(label, {})
                    )
            if name in context.queues:
                states = Counter(replicas[each.name]["state"] for each in pool.replicas if each.name in replicas)
                pools[name] = pool_item(context, pool, states)
        self._replicas.forget_all_but(replicas)
        return pools, replicas

    def _line(
        self, pools: dict[str, Any], replicas: dict[str, Any], offenders: dict[str, Any], loaded: dict[str, Any]
    ) -> dict[str, Any]:
        found = [*self._found(pools, replicas, offenders, loaded)]
        return self._findings.document(found, self._context.wall())

    def _found(
        self, pools: dict[str, Any], replicas: dict[str, Any], offenders: dict[str, Any], loaded: dict[str, Any]
    ) -> Iterator[Finding]:
        context = self._context
        if context.is_draining():
            yield Finding("draining", "bad", "this gateway is ending: running requests are finished, new ones refused")
        yield from findings.of_pools(pools)
        yield from findings.of_replicas(replicas)
        yield from findings.of_quarantine(offenders)
        yield from findings.of_configuration(loaded)
        store = context.store.status()
        yield from findings.of_store(store.kind, store.connected, self._wall_of(store.since))

    def _about(self) -> dict[str, Any]:
        context = self._context
        store = context.store.status()
        return {
            "version": __version__,
            "started": round(context.memory.started_at, 1),
            "store": store.kind,
            "quarantine_pool": context.config.quarantine_pool,
            "clients": context.open_connections(),
        }

    def _wall_of(self, reading_s: float) -> float:
        return round(self._context.wall() - (self._context.clock() - reading_s), 1)
