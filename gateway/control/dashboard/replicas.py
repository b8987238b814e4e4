"""How the page is told of a replica: one word for its state and why, what runs there, and what its engine tells."""

import math
from collections.abc import Container
from typing import Any

from gateway.control.context import AdminContext
from gateway.control.dashboard.history import Latencies
from gateway.control.dashboard.pools import latencies_of, share_of
from gateway.feed.sources import SourceStatus
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica

_AT_ONCE = 100
"""So many replicas' last minutes are reckoned up anew at a time; where there are more, they take turns."""


class Replicas:
    """Of one gateway. Remembers of each how long it has been in its state, and how much was sent to it."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._sent: dict[str, tuple[float, int]] = {}
        """By replica: clock reading, and how many requests had been sent to it then."""
        self._rates: dict[str, float] = {}
        self._since: dict[str, tuple[str, float]] = {}
        """By replica: its state, and since when it is in it."""
        self._minutes: dict[str, tuple[float, Latencies | None]] = {}
        """By replica: clock reading, and what its last minute came to then."""
        self._reckoned = 0
        """Of them in this turn."""

    def begin(self) -> None:
        """All replicas are about to be told of once more."""
        self._reckoned = 0

    def item(
        self,
        pool: Pool,
        replica: Replica,
        breaker: dict[str, object],
        source: SourceStatus | None,
        errors: dict[str, int],
    ) -> dict[str, Any]:
        """A replica; `breaker` is what its breaker says of it, `source` where its step times come from.

        errors: how many attempts there failed, by kind.
        """
        context = self._context
        record = context.health.record(replica)
        upstream = context.upstreams[replica.name]
        state, why = _state_of(replica, breaker, record.last_error)
        back_s = breaker["back_in_s"]
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
            "waiting": upstream.waiting,
            "elsewhere": replica.elsewhere,
            "per_s": round(self._rate(replica.name, upstream.connects + upstream.reused), 1),
            "booked": share_of(replica.booked_us, pool.judged_us),
            "cache_usage": None if replica.cache_usage < 0.0 else round(replica.cache_usage, 3),
            "budget_us": pool.judged_us,
            **latencies_of(self._minute(pool, replica)),
            "engine": source.engine if source is not None and source.engine else replica.engine,
            "version": "" if source is None else source.version,
            "source": "none" if source is None else source.source.value,
            "feed_lag_s": None if source is None or source.lag_s is None else round(source.lag_s),
            "feed_lost": source is not None and source.boots > 0 and source.source.value != "steps",
            "last_error": record.last_error,
            "errors": errors,
            "last_errors": [
                {"at": round(at, 1), "kind": kind, "said": said}
                for at, kind, said in reversed(context.tally.last_errors.get(replica.name, ()))
            ],
        }

    def forget_all_but(self, names: Container[str]) -> None:
        """Replicas come and go, and their names with them."""
        for name in [name for name in self._since if name not in names]:
            del self._since[name]
            self._sent.pop(name, None)
            self._rates.pop(name, None)
            self._minutes.pop(name, None)

    def _since_when(self, replica: Replica, state: str, in_breaker_s: object) -> float:
        """Since when a replica is in its state; told once, since ages read off two clocks are never quite the same."""
        known = self._since.get(replica.name)
        if known is not None and known[0] == state:
            return known[1]
        age_s = self._context.health.state_age_s(replica)
        if state in ("ejected", "trial") and isinstance(in_breaker_s, float):
            age_s = in_breaker_s
        elif known is not None and state != "down":
            age_s = 0.0  # nobody else knows it; noticed every few seconds at the least
        at = round(self._context.wall() - age_s, 1)
        self._since[replica.name] = (state, at)
        return at

    def _minute(self, pool: Pool, replica: Replica) -> Latencies | None:
        now_s = self._context.clock()
        then_s, known = self._minutes.get(replica.name, (-math.inf, None))
        age_s = now_s - then_s
        is_due = self._reckoned < _AT_ONCE and age_s >= len(self._since) // _AT_ONCE
        if is_due or age_s == math.inf:
            self._reckoned += 1
            known = self._context.memory.history.latencies(pool.name, replica.name, pool.judged_us)
            self._minutes[replica.name] = now_s, known
        return known

    def _rate(self, name: str, sent: int) -> float:
        """Requests a second, over the last seconds."""
        now_s = self._context.clock()
        then_s, before = self._sent.get(name, (now_s, sent))
        if now_s - then_s >= 3.0 or name not in self._sent:
            self._sent[name] = (now_s, sent)
            self._rates[name] = max(0, sent - before) / (now_s - then_s) if now_s > then_s else 0.0
        return self._rates.get(name, 0.0)


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
    if replica.warming:
        return "warming", "compiles the grammars that are used most"
    return ("resting", "its engine asked for a pause") if replica.resting else ("up", "")
