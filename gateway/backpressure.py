"""Replicas whose engines have said when to come back: they get nothing new until then.

Owns those pauses and their ends. A busy engine is no broken one: no breaker hears of this, the replica's pool stays
available, and requests that find nobody else wait for it where the wait is not too long (waitingroom.py).
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import structlog

from gateway.call import Call, Terms
from gateway.retry.alarms import Alarm, Alarms
from gateway.retry.retryafter import header_of, retry_after_s
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import Rejection

log = structlog.get_logger("steplane.proxy")


@dataclass(frozen=True, slots=True)
class _Pause:
    until_s: float
    status: int
    end: Alarm


class BackPressure:
    """See the module. `clock` is monotonic, `wall` the time of day, both in seconds."""

    def __init__(self, alarms: Alarms, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._alarms = alarms
        self._clock = clock
        self._wall = wall
        self._pauses: dict[Replica, _Pause] = {}

    def heard(self, replica: Replica, status: int, message: bytes, most_s: float) -> None:
        """A replica has answered that it is busy; `message` is all of its answer. It rests for `most_s` at most."""
        value = header_of(message, b"retry-after") if most_s > 0.0 else None
        if value is None:
            return
        asked_s = retry_after_s(value, self._wall())
        if not asked_s:
            return
        until_s = self._clock() + min(asked_s, most_s)
        known = self._pauses.get(replica)
        if known is not None:
            if known.until_s >= until_s:
                return
            known.end.cancel()
        self._pauses[replica] = _Pause(until_s, status, self._alarms.set(until_s, lambda: self._over(replica)))
        if known is None:
            log.info("replica_rests", replica=replica.name, status=status, seconds=min(asked_s, most_s))
            replica.rest(True)

    def refusal(self, call: Call, terms: Terms, excluded: Collection[Replica]) -> Rejection | None:
        """The answer for a request that would wait for longer than it may; None: somebody takes it, or it may wait."""
        pool, policy, timing = terms.pool, terms.queue.policy, call.timing
        now_s = self._clock()
        longest_s = policy.max_wait_s if policy.queue else 0.0
        if timing is not None:
            longest_s = min(longest_s, timing.until_s - now_s)
        until_s, status = self._first_of(pool, excluded)
        rest_s = until_s - now_s
        if rest_s <= max(0.0, longest_s):
            return None
        message = f"all replicas of pool {pool.name!r} are busy, and the first wants no requests for {rest_s:.1f} s"
        return Rejection(status, "replicas_busy", message, max(1, math.ceil(rest_s)))

    def _first_of(self, pool: Pool, excluded: Collection[Replica]) -> tuple[float, int]:
        """When the first pause ends, and the status of the answer that began it; -inf where somebody does not rest."""
        first_s, status = -math.inf, 503
        for replica in pool.replicas:
            if replica in excluded:
                continue
            if replica.available:
                return -math.inf, status
            pause = self._pauses.get(replica)
            if replica.resting and pause is not None and (first_s == -math.inf or pause.until_s < first_s):
                first_s, status = pause.until_s, pause.status
        return first_s, status

    def _over(self, replica: Replica) -> None:
        del self._pauses[replica]
        replica.rest(False)
