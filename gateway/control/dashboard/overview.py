"""What the page shows of one gateway, as one document of sections and items: made once a second for all who watch.

Times are seconds of the wall clock, so that an item stays the same while nothing happens to it: only what has changed
is sent. Reads the parts of the gateway; owns the words of the page and no state but since when something is wrong.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from gateway import __version__
from gateway.breaker.record import BreakerRecord, Kind, State
from gateway.control.api.record import record_document
from gateway.control.context import AdminContext
from gateway.control.dashboard import findings
from gateway.control.dashboard.findings import Finding, Findings
from gateway.control.dashboard.history import Figures
from gateway.control.secrets import shown_config
from gateway.feed.sources import SourceStatus
from gateway.hookcost.costbook import CostEntry
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.settings import Spill

Document = dict[str, dict[str, Any]]
"""Items by section and key."""

_LISTED = 200
_TOP = 20
_TOP_EVERY_S = 5.0
_IN_ONE_TURN = 25
_A_MINUTE = 60.0


class Overview:
    """Of one gateway. Belongs to its event loop."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._findings = Findings()
        self._top: list[CostEntry] = []
        self._top_at_s = -_TOP_EVERY_S
        self._sent: dict[str, tuple[float, int]] = {}
        """By replica: clock reading, and how many requests had been sent to it then."""
        self._rates: dict[str, float] = {}
        self._since: dict[str, tuple[str, float]] = {}
        """By replica: its state, and since when it is in it."""

    async def compose(self) -> Document:
        """The document as of now; made in turns, since the loop carries requests, too."""
        sources = {status.replica: status for status in self._context.senses.status()}
        pools: dict[str, Any] = {}
        replicas: dict[str, Any] = {}
        context = self._context
        for name, pool in list(context.router.pools.items()):
            if name not in context.queues:  # it has gone since the turn before, as replicas may have below
                continue
            breakers = {str(each["replica"]): each for each in context.breakers[name].snapshot()}
            for replica in pool.replicas:
                if replica.name in breakers and not replica.retired:
                    replicas[replica.name] = self._replica(pool, replica, breakers[replica.name], sources)
                if len(replicas) % _IN_ONE_TURN == 0:
                    await asyncio.sleep(0)
            states = Counter(replicas[each.name]["state"] for each in pool.replicas if each.name in replicas)
            pools[name] = self._pool(pool, states)
        offenders = await self._offenders()
        configuration = {"loaded": self._loaded()}
        now = self._context.wall()
        found = [*self._found(pools, replicas, offenders, configuration["loaded"])]
        return {
            "gateway": {"about": self._about()},
            "status": {"line": self._findings.document(found, now)},
            "pools": pools,
            "replicas": replicas,
            "offenders": offenders,
            "configuration": configuration,
            "rules": self._rules(),
        }

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

    def _pool(self, pool: Pool, states: Counter[str]) -> dict[str, Any]:
        context = self._context
        queue = context.queues[pool.name]
        snapshot = queue.snapshot()
        unavailable = pool.when_unavailable
        figures = context.memory.history.figures(pool.name, pool.step_budget_us)
        config = context.config.pools.get(pool.name)
        oldest_s = snapshot["oldest_s"]
        assert isinstance(oldest_s, float)
        return {
            "available": pool.is_available(),
            "quarantine": pool.name == context.config.quarantine_pool,
            "spills_to": unavailable.pool if isinstance(unavailable, Spill) else None,
            "balance": "" if config is None else config.balance.label,
            "budget_us": pool.step_budget_us,
            "replicas": len(pool.replicas),
            "states": states,
            "in_flight": sum([replica.in_flight for replica in pool.replicas]),
            "waiting": pool.waiting,
            "oldest_s": round(oldest_s, 1),
            "max_wait_s": queue.policy.max_wait_s,
            "booked": _share(max([each.booked_us for each in pool.replicas], default=0.0), pool.step_budget_us),
            **_figures(figures),
        }

    def _replica(
        self, pool: Pool, replica: Replica, breaker: dict[str, object], sources: dict[str, SourceStatus]
    ) -> dict[str, Any]:
        context = self._context
        record = context.health.record(replica)
        source = sources.get(replica.name)
        upstream = context.upstreams[replica.name]
        state, why = _state_of(replica, breaker, record.last_error)
        back_s = breaker["back_in_s"]
        steps = context.steps.get(replica.name)
        errors = {
            kind: count for (_, name, kind), count in context.tally.upstream_errors.items() if name == replica.name
        }
        return {
            "pool": pool.name,
            "url": replica.url,
            "state": state,
            "since": self._since_when(replica, state, breaker["since_s"]),
            "why": why,
            "back_at": None if not isinstance(back_s, float) else round((context.wall() + back_s) / 2) * 2,
            "breaker": breaker["state"],
            "held": breaker["held"],
            "ejections": breaker["ejections"],
            "in_flight": replica.in_flight,
            "elsewhere": replica.elsewhere,
            "per_s": round(self._rate(replica.name, upstream.connects + upstream.reused), 1),
            "booked": _share(replica.booked_us, pool.step_budget_us),
            "cache_usage": None if replica.cache_usage < 0.0 else round(replica.cache_usage, 3),
            "hook_us": None if steps is None or not steps.steps else round(steps.hook_s / steps.steps * 1e6, 1),
            "forward_us": None if steps is None or not steps.steps else round(steps.forward_s / steps.steps * 1e6, 1),
            "engine": source.engine if source is not None and source.engine else replica.engine,
            "version": "" if source is None else source.version,
            "source": "none" if source is None else source.source.value,
            "feed_lag_s": None if source is None or source.lag_s is None else round(source.lag_s),
            "feed_lost": source is not None and source.boots > 0 and source.source.value != "steps",
            "last_error": record.last_error,
            "errors": errors,
        }

    def _since_when(self, replica: Replica, state: str, in_breaker_s: object) -> float:
        """Since when a replica is in its state; told once, since ages read off two clocks are never quite the same."""
        known = self._since.get(replica.name)
        if known is not None and known[0] == state:
            return known[1]
        age_s = self._context.health.state_age_s(replica)
        if state in ("ejected", "trial") and isinstance(in_breaker_s, float):
            age_s = in_breaker_s
        elif known is not None:
            age_s = 0.0
        at = round(self._context.wall() - age_s, 1)
        self._since[replica.name] = (state, at)
        return at

    def _rate(self, name: str, sent: int) -> float:
        """Requests a second, over the last seconds."""
        now_s = self._context.clock()
        then_s, before = self._sent.get(name, (now_s, sent))
        if now_s - then_s >= 3.0 or name not in self._sent:
            self._sent[name] = (now_s, sent)
            self._rates[name] = max(0, sent - before) / (now_s - then_s) if now_s > then_s else 0.0
        return self._rates.get(name, 0.0)

    async def _offenders(self) -> dict[str, Any]:
        """What is barred, and the dearest of what is not."""
        context = self._context
        shown: dict[str, Any] = {}
        for record in context.trust.snapshot()[:_LISTED]:
            shown[f"{record.kind.value}/{record.key}"] = self._offender(record, context.book.entry(record.key))
            if len(shown) % _IN_ONE_TURN == 0:
                await asyncio.sleep(0)
        now_s = context.clock()
        if now_s - self._top_at_s >= _TOP_EVERY_S:
            self._top_at_s = now_s
            turns = context.book.top_in_turns(_TOP)
            while True:
                try:
                    next(turns)
                except StopIteration as done:
                    self._top = done.value
                    break
                await asyncio.sleep(0)
        for entry in self._top:
            key = f"{Kind.signature.value}/{entry.signature}"
            if key not in shown:
                known = context.trust.record(Kind.signature, entry.signature)
                shown[key] = self._offender(known or BreakerRecord(Kind.signature, entry.signature), entry)
        return shown

    def _offender(self, record: BreakerRecord, entry: CostEntry | None) -> dict[str, Any]:
        document = record_document(record)
        portrait = self._context.memory.portraits.of(record.key)
        observed = predicted_us = predicted_ms = None
        if entry is not None:
            observed = entry.document()
            del observed["last_seen_s"]
            if entry.predicted is not None:
                predicted_us, predicted_ms = round(entry.predicted.step_us, 1), round(entry.predicted.compile_ms, 2)
        if portrait is not None:
            predicted_us, predicted_ms = portrait.predicted_us, portrait.predicted_ms
        latest = self._context.memory.namings.of(record.key)[:1] if record.kind is Kind.signature else []
        tenant = document["tenant"] or (latest[0].tenant if latest else None)
        barred = record.state is not State.closed
        return {
            "kind": record.kind.value,
            "key": record.key,
            "state": record.state.value,
            "since": round(record.since, 1) if record.since and barred else None,
            "until": record.until,
            "next_probe": record.next_probe,
            "probes": record.probes,
            "good_probes": record.good_probes,
            "trips": record.trips,
            "author": record.author if barred else None,
            "cause": document["cause"],
            "why": document["why"] if barred else "",
            "advice": document["advice"],
            "pool": document["pool"],
            "tenant": tenant,
            "observed": observed,
            "predicted_us": predicted_us,
            "predicted_ms": predicted_ms,
            "looks": None if portrait is None else asdict(portrait),
        }

    def _loaded(self) -> dict[str, Any]:
        context = self._context
        reloads = context.reloader.reloads
        last = reloads.last
        return {
            "source": None if reloads.source is None else str(reloads.source),
            "files": len(context.config.files),
            "loaded_at": round(reloads.loaded_at, 1),
            "reloads": sum(reloads.outcomes.values()),
            "warnings": [str(each) for each in context.config.warnings],
            "last_reload": None
            if last is None
            else {
                "at": round(last.at, 1),
                "outcome": last.outcome.value,
                "trigger": last.trigger,
                "why": None if last.outcome.is_good else last.why,
                "problems": [str(each) for each in last.problems],
                "changes": [str(each) for each in last.changes[:20]],
                "needs_restart": [*last.restart],
            },
        }

    def _rules(self) -> dict[str, Any]:
        """In their order; a rule that can't match says why."""
        context = self._context
        hits: Counter[str] = Counter()
        for (_, name, _, _), count in context.tally.finished_requests().items():
            hits[name] += count
        written = context.config.rules
        dead = {each.key.partition("]")[0]: each.said for each in context.config.warnings}
        shown: dict[str, Any] = {}
        for at, rule in enumerate(context.router.rules):
            if rule.name in shown:  # the last one, which is there without being written, may be written, too
                continue
            part = written[at] if at < len(written) and written[at].name == rule.name else None
            when = None if part is None else shown_config(part.when, context.config.origins, ("rules", at, "when"))
            to = ", ".join(rule.cheapest) or rule.pool or "refused"
            shown[rule.name] = {
                "at": at,
                "when": when or None,
                "to": to,
                "fallbacks": [*rule.fallbacks],
                "hits": hits[rule.name],
                "dead": dead.get(f"rules[{at}"),
            }
        return shown

    def _wall_of(self, reading_s: float) -> float:
        return round(self._context.wall() - (self._context.clock() - reading_s), 1)


def _state_of(replica: Replica, breaker: dict[str, object], last_error: str | None) -> tuple[str, str]:
    """One word for a replica, and why."""
    if replica.draining:
        return "draining", "drained by hand"
    if not replica.healthy:
        return "down", last_error or "not probed yet"
    reason = str(breaker["reason"] or "")
    if replica.ejected:
        return "ejected", reason
    if replica.on_trial:
        return "trial", reason
    return ("resting", "its engine asked for a pause") if replica.resting else ("up", "")


def _figures(figures: Figures | None) -> dict[str, Any]:
    if figures is None:
        return dict.fromkeys(_FIGURES) | {"per_s": 0.0, "per_minute": 0.0, "failed": 0.0, "spills": 0.0, "rejects": 0.0}
    return {name: None if value is None else round(value, 4) for name, value in asdict(figures).items()} | {
        "per_minute": round(figures.per_s * _A_MINUTE)
    }


_FIGURES = tuple(Figures.__dataclass_fields__)


def _share(us: float, budget_us: float | None) -> float | None:
    return None if budget_us is None else round(us / budget_us, 3)
