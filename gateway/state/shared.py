"""A store that several gateways share. What they know is kept here as well: without the others, work goes on.

Knows neither where it is shared nor how: that is the link's (redis.py, socketstore.py).
"""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol

import structlog

from gateway.retry.pauses import Pauses
from gateway.state.health import Health
from gateway.state.knowledge import Knowledge
from gateway.state.leases import Lease, Leases
from gateway.state.link import Link
from gateway.state.session import MissedChangesError, Session
from gateway.state.store import Added, Decided, Record, StoreStatus, Watcher

_log = structlog.get_logger("steplane.state")


class Pace(Protocol):
    """How long a shared store waits for each thing; `RedisOptions` says what they mean."""

    @property
    def timeout_s(self) -> float: ...
    @property
    def lease_timeout_s(self) -> float: ...
    @property
    def look_s(self) -> float: ...
    @property
    def count_s(self) -> float: ...
    @property
    def start_wait_s(self) -> float: ...
    @property
    def retry_s(self) -> float: ...
    @property
    def retry_max_s(self) -> float: ...
    @property
    def capacity(self) -> int: ...


class SharedStore:
    """`Store` shared by all gateways that link to the same place. A change made here is known there within
    milliseconds.

    While that place is away, slow, full or read-only, forces are shown here at once and published later, advances and
    counters wait, and no lease is granted. One that lost data is given again what this gateway knows.
    """

    def __init__(
        self,
        open_link: Callable[[], Awaitable[Link]],
        failures: tuple[type[BaseException], ...],
        health: Health,
        pace: Pace,
        *,
        clock: Callable[[], float],
        ttls_s: Mapping[str, float] | None = None,
        random_source: random.Random | None = None,
    ) -> None:
        """`failures`: what opening and using a link raises. `clock` gives seconds; `ttls_s`: by kind, how long a
        record or counter outlives its last change. Kinds that are named there or watched before `start` are known when
        it returns."""
        self._open_link = open_link
        self._failures = failures
        self._passing: tuple[type[BaseException], ...] = (*failures, MissedChangesError)
        self._pace = pace
        self._clock = clock
        self._knowledge = Knowledge(
            # Tokens must differ from those of every other gateway, also of one seeded alike.
            origin=secrets.token_hex(6),
            clock=clock,
            ttls_s=ttls_s or {},
            capacity=pace.capacity,
        )
        self._leases = Leases(clock)
        self._health = health
        self._random = random_source or random.Random()
        self._changed = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._session: Session | None = None
        """The one that has caught up, if any."""
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def start(self) -> None:
        """Connect, and go on connecting in the background where that doesn't succeed within a moment."""
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="shared state")
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.start_wait_s):
                await self._caught_up.wait()

    async def close(self) -> None:
        """Publish what waits, within the time of one exchange, and disconnect."""
        if self._task is None:
            return
        if self._session is not None:
            with suppress(*self._failures):
                async with asyncio.timeout(self._pace.timeout_s):
                    await self._session.flush()
        self._closing = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    def force(self, kind: str, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        """Put `value` on top, and show it at once; the new version."""
        version = self._knowledge.ledger(kind).force(key, value, self._ttl_s(kind, ttl_s))
        self._changed.set()
        return version

    def advance(
        self,
        kind: str,
        key: str,
        expected_version: int,
        value: bytes,
        *,
        ttl_s: float | None = None,
        decided: Decided | None = None,
    ) -> None:
        """Replace the value if the version is `expected_version`; the shared side decides."""
        self._knowledge.ledger(kind).advance(key, expected_version, value, self._ttl_s(kind, ttl_s), decided)
        self._changed.set()

    def record(self, kind: str, key: str) -> Record | None:
        """What is known of a key."""
        return self._knowledge.ledger(kind).record(key)

    def records(self, kind: str) -> dict[str, Record]:
        """All that is known of a kind, by key."""
        return self._knowledge.ledger(kind).records()

    def watch(self, kind: str, watcher: Watcher) -> None:
        """Tell `watcher` what is known, and each change from now on."""
        self._knowledge.watch(kind, watcher)

    async def lease(self, key: str, ttl_s: float) -> bool:
        """Whether `key` is this gateway's alone for `ttl_s` seconds, counted from the call."""
        session = self._session
        if session is None:
            return False
        lease = Lease(key, self._knowledge.new_token(), self._clock() + ttl_s)
        try:
            async with asyncio.timeout(self._pace.lease_timeout_s):
                granted = await session.lease(lease, ttl_s)
        except self._failures:
            # It may be granted yet. Nobody shall wait for the end of a lease that nobody uses.
            self._leases.doubtful(lease)
            self._changed.set()
            return False
        if granted:
            self._leases.granted(lease)
        return granted

    def release(self, key: str) -> None:
        """Give a lease back, if it is held."""
        if self._leases.release(key):
            self._changed.set()

    def add(self, kind: str, key: str, amounts: Mapping[str, float]) -> None:
        """Add to the counters of a key."""
        self._knowledge.tally(kind).add(key, amounts)

    def totals(self, kind: str, key: str) -> dict[str, float]:
        """The counters of a key, all gateways together, as last read."""
        return self._knowledge.tally(kind).totals(key)

    def watch_added(self, kind: str, watcher: Added) -> None:
        """Tell `watcher` what others add, from the next reading on."""
        self._knowledge.watch_added(kind, watcher)

    def status(self) -> StoreStatus:
        """How it is."""
        health = self._health
        return StoreStatus(
            kind=health.kind,
            address=health.address,
            connected=health.connected,
            since=health.since,
            pending=self._knowledge.pending,
            dropped=self._knowledge.dropped,
            last_error=health.last_error,
            latency_ms=health.latency_ms,
        )

    def _ttl_s(self, kind: str, ttl_s: float | None) -> float:
        return self._knowledge.ttl_s(kind) if ttl_s is None else ttl_s

    async def _run(self) -> None:
        pace = self._pace
        pauses = Pauses(pace.retry_s, pace.retry_max_s, self._random)
        while True:
            began = self._clock()
            try:
                # In a task of its own: a task group leaves its task marked as cancelled (Python 3.11, gh-117407).
                await asyncio.create_task(self._connect_and_exchange(), name="shared state: session")
            except* self._passing as group:
                self._health.ill(_first(group))
            except* Exception as group:
                # A fault of ours, but state must come back all the same.
                _log.exception("exchanging state failed")
                self._health.ill(_first(group))
            if self._closing:
                # A session that fails while it is cancelled tells of the failure alone.
                return
            if self._clock() - began > pace.retry_max_s:
                pauses.reset()
            await asyncio.sleep(pauses.next_s())

    async def _connect_and_exchange(self) -> None:
        pace = self._pace
        link = await self._open_link()
        try:
            session = Session(
                link=link,
                knowledge=self._knowledge,
                leases=self._leases,
                health=self._health,
                clock=self._clock,
                pauses=Pauses(pace.retry_s, pace.retry_max_s, self._random),
                look_s=pace.look_s,
                count_s=pace.count_s,
                changed=self._changed,
                ready=lambda: self._is_ready(session),
            )
            await session.run()
        finally:
            self._session = None
            await link.close()

    def _is_ready(self, session: Session) -> None:
        self._session = session
        self._caught_up.set()
        # Publishing, be it of nothing, finds out whether they are taken, and says that all is well.
        self._changed.set()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
