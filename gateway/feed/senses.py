"""The senses put together: for every replica the best source there is, and one place to be told by.

    step feed   every step, attributed (stepfeed.py → attribution.py)
    metrics     while there is no step feed: sums of every five seconds (scrape.py)
    itl         while there is no step feed: gaps on the gateway's own streams, blamed by a control (itl.py, control.py)

Owns the tasks, the HTTP session and the clock tick. Decides nothing about requests or replicas: it tells its observer.
Whatever fails here, the gateway goes on without knowing.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import orjson
import structlog

from gateway.feed import records
from gateway.feed.abort import FeedDoor
from gateway.feed.attribution import Attribution, Observer
from gateway.feed.itl import Attempt, ReplicaItl
from gateway.feed.reach import Reach
from gateway.feed.running import Running, RunningRequests
from gateway.feed.scrape import EngineMetrics, Scraper
from gateway.feed.session import ReplicaSession, open_session, read_at_most
from gateway.feed.sources import ReplicaProgress, Source, SourceStatus
from gateway.feed.stepfeed import Patience, StepFeed
from gateway.feed.target import Target

log = structlog.get_logger("steplane.feed")

_TICK_S = 1.0
_IN_ONE_TURN = 100
"""Replicas; then the loop, which carries requests, goes round."""
_LESS_OFTEN = 6
_SPEAKS_EVERY_S = 1.0
"""A step feed sends a line at least this often."""
_OFFENCES_WITHIN_S = 2.0
_MOST_OFFENCES_BYTES = 4 << 20
_WITH_METRICS = frozenset({"sglang", "vllm"})


@dataclass(frozen=True, slots=True)
class ReplicaGone:
    """A replica's engine has ended, by its own feed's account or by that of the engine that came after it.

    at_s:    when it was heard of, or at most a second after the engine's last sign of life.
    boot:    names the run that ended.
    running: what ran on it then.
    ended:   what had ended on it within the last one or two seconds: the proxy may have heard of the end first.
    """

    replica: str
    at_s: float
    boot: str
    running: tuple[Running, ...]
    ended: tuple[Running, ...]


class SensesObserver(Observer, Protocol):
    """Who is told of everything, on the event loop. What it raises is logged and goes no further."""

    def progress(self, progress: ReplicaProgress) -> None:
        """How a replica's steps go; about once a second while its step feed speaks."""

    def metrics(self, metrics: EngineMetrics) -> None:
        """What a replica without a step feed says of itself; every five seconds."""

    def gone(self, gone: ReplicaGone) -> None:
        """A replica's engine has ended; once for each of its runs."""


class Senses:
    """The senses of all replicas. All methods belong to one event loop; `clock`: the gateway's monotonic one, in s."""

    def __init__(
        self,
        running: RunningRequests,
        observer: SensesObserver,
        *,
        clock: Callable[[], float],
        random_source: random.Random | None = None,
        patience: Patience = Patience(),  # noqa: B008 (frozen)
        reach: Reach | None = None,
    ) -> None:
        self._running = running
        self._reach = reach
        self._observer = observer
        self._clock = clock
        self._random = random_source or random.Random()
        self._patience = patience
        self._sensed: dict[str, _Sensed] = {}
        self._session: ReplicaSession | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        """Of replicas that have left."""

    async def start(self, targets: Iterable[Target]) -> None:
        """Begin to sense; returns at once."""
        self._session = open_session("feed", self._reach)
        self._ticking = asyncio.create_task(self._tick(), name="senses")
        self.update(targets)

    def update(self, targets: Iterable[Target]) -> None:
        """Sense these replicas from now on; what is known of those that stay as they are is kept."""
        wanted = {target.name: target for target in targets}
        for name in list(self._sensed):
            if name not in wanted:
                self.remove(name)
        for target in wanted.values():
            self.add(target)

    def add(self, target: Target) -> None:
        """Sense one more replica, in the place of one of its name that was another."""
        if self._session is None:
            raise RuntimeError("add() before start(): there is nothing to sense with yet")
        sensed = self._sensed.get(target.name)
        if sensed is not None:
            if sensed.target == target:
                return
            self.remove(target.name)
        self._sensed[target.name] = sensed = _Sensed(
            target,
            self._running,
            self._observer,
            self._session,
            self._reach,
            self._clock,
            self._random,
            self._patience,
        )
        sensed.start()

    def remove(self, name: str) -> None:
        """Sense a replica no more."""
        sensed = self._sensed.pop(name, None)
        if sensed is not None:
            self._ending.update(sensed.stop())

    async def close(self) -> None:
        """Stop sensing."""
        for name in list(self._sensed):
            self.remove(name)
        tasks = [*self._ending]
        if self._ticking is not None:
            self._ticking.cancel()
            tasks.append(self._ticking)
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def itl(self, replica: str) -> ReplicaItl | None:
        """Where the proxy tells of the streams of a replica; the same object until `update` changes the replica."""
        sensed = self._sensed.get(replica)
        return None if sensed is None else sensed.itl

    def gap_us(self, replica: str) -> float | None:
        """The median of the gaps on a replica's streams, in µs; None where it has a step feed, or no streams."""
        itl = self.itl(replica)
        return itl.median_us() if itl is not None and itl.on else None

    def last_progress(self, replica: str) -> float:
        """Clock reading when a step of the replica was last known to have ended; -inf: never."""
        sensed = self._sensed.get(replica)
        return -math.inf if sensed is None else sensed.advanced_s

    def feed_of(self, replica: str) -> FeedDoor | None:
        """How a replica's step feed is asked for things; None where none speaks now."""
        sensed = self._sensed.get(replica)
        return None if sensed is None else sensed.door()

    def status(self) -> list[SourceStatus]:
        """Which source each replica has."""
        now = self._clock()
        return [sensed.status(now) for sensed in self._sensed.values()]

    def status_of(self, replica: str) -> SourceStatus | None:
        """Which source one replica has; None for a replica that is not watched."""
        sensed = self._sensed.get(replica)
        return None if sensed is None else sensed.status(self._clock())

    async def offences(self, replica: str) -> list[Any]:
        """What a replica's watchdog has caught lately, with stacks, as its step feed tells it; nothing without one.

        Raises nothing that the feed is to blame for.
        """
        door = self.feed_of(replica)
        if door is None or self._session is None:
            return []
        try:
            timeout = aiohttp.ClientTimeout(total=_OFFENCES_WITHIN_S)
            async with self._session.get(f"{door.url}/stacks", headers=door.headers, timeout=timeout) as response:
                body = await read_at_most(response, _MOST_OFFENCES_BYTES)
            found = orjson.loads(body or b"{}")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log.warning("offences_not_read", replica=replica, error=str(error) or type(error).__name__)
            return []
        offences = found.get("offences") if isinstance(found, dict) else None
        return offences if isinstance(offences, list) else []

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._running.rotate()
            now = self._clock()
            self._ending = {task for task in self._ending if not task.done()}
            for at, sensed in enumerate(list(self._sensed.values())):
                sensed.tick(now)
                if at % _IN_ONE_TURN == _IN_ONE_TURN - 1:
                    await asyncio.sleep(0)


class _Sensed:
    """One replica's sources, and the change from one to the other."""

    def __init__(
        self,
        target: Target,
        running: RunningRequests,
        observer: SensesObserver,
        session: ReplicaSession,
        reach: Reach | None,
        clock: Callable[[], float],
        random_source: random.Random,
        patience: Patience,
    ) -> None:
        self.target = target
        self.itl = ReplicaItl(clock)
        self.scraper = Scraper(target.name, target.url, reach)
        self.advanced_s = -math.inf
        self._running = running
        self._observer = observer
        self._clock = clock
        self._attribution = Attribution(target, running, observer, clock)
        self._feed = None if target.feed_url is None else StepFeed(target, self, session, random_source, patience)
        # Spread, so that many replicas are not read at one time.
        self._first_scrape_s = random_source.uniform(0.0, patience.scrape_every_s)
        self._scrape_pause_s = patience.scrape_every_s * random_source.uniform(0.9, 1.0)
        self._source = Source.none
        self._since_s = clock()
        self._next_seq = 0
        self._heard_s = -math.inf
        self._lag_s: float | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self.itl.switch(True, self._attempts())
        if self._feed is not None:
            self._tasks.append(asyncio.create_task(self._feed.run(), name=f"step feed of {self.target.name}"))
        if self.target.engine in _WITH_METRICS:
            self._tasks.append(asyncio.create_task(self._scrape(), name=f"metrics of {self.target.name}"))

    def stop(self) -> list[asyncio.Task[None]]:
        """The tasks that are ending."""
        self.itl.switch(False)
        for task in self._tasks:
            task.cancel()
        return self._tasks

    def door(self) -> FeedDoor | None:
        url = self.target.feed_url
        if url is None or self._feed is None or not self._feed.connected:
            return None
        return FeedDoor(url, self.target.headers)

    def tick(self, now: float) -> None:
        """Once a second."""
        try:
            for observation in self.itl.evidence(now):
                self._observer.step(observation)
        except Exception:
            log.exception("control_failed", replica=self.target.name)
        self._choose(now)

    def status(self, now: float) -> SourceStatus:
        self._choose(now)
        feed, attribution = self._feed, self._attribution
        hello = None if feed is None else feed.hello
        return SourceStatus(
            replica=self.target.name,
            source=self._source,
            since_s=now - self._since_s,
            feed_url=self.target.feed_url,
            engine="" if hello is None else hello.engine,
            version="" if hello is None else hello.version,
            boot="" if hello is None else hello.boot,
            lag_s=self._lag_s,
            records=0 if feed is None else feed.records,
            lost=0 if feed is None else feed.lost,
            garbage=0 if feed is None else feed.garbage + feed.failed,
            unattributed=attribution.unattributed,
            starved=attribution.starved,
            boots=0 if feed is None else feed.boots,
            last_error=None if feed is None or feed.connected else feed.last_error,
        )

    # What the step feed tells (stepfeed.Listener).

    def step(self, record: records.Step) -> None:
        self.advanced_s = self._hear()
        self._next_seq = record.seq + 1
        self._attribution.step(record)

    def rollup(self, record: records.Rollup) -> None:
        now = self.advanced_s = self._hear()
        self._next_seq = record.after + 1
        self._lag_s = max(0.0, time.time() - record.at_unix_s)
        self._attribution.rollup(record)
        steps = max(1, record.steps)
        self._observer.progress(
            ReplicaProgress(
                replica=self.target.name,
                at_s=now,
                steps=record.steps,
                step_us=record.step_us / steps,
                step_max_us=record.step_max_us,
                forward_us=record.forward_us / steps,
                hook_us=record.hook_us / steps,
                sequences=record.sequences / steps,
                step_runs_s=0.0,
                advanced_s=now,
            )
        )

    def compile(self, record: records.Compile) -> None:
        self._hear()
        self._attribution.compile(record)

    def offence(self, record: records.Offence) -> None:
        self._hear()
        self._attribution.offence(record)

    def alive(self, record: records.Alive) -> None:
        now = self._hear()
        if record.next_seq > self._next_seq:
            self._next_seq, self.advanced_s = record.next_seq, now
        self._observer.progress(
            ReplicaProgress(self.target.name, now, 0, 0.0, 0.0, 0.0, 0.0, 0.0, record.step_runs_s, self.advanced_s)
        )

    def gone(self, boot: str) -> None:
        # Where the end is only seen by the engine's return, requests may run on the new one already.
        at_s = min(self._clock(), self._heard_s + _SPEAKS_EVERY_S)
        name = self.target.name
        running = tuple([attempt for attempt in self._running.on_replica(name) if attempt.received_s <= at_s])
        ended = tuple([attempt for attempt in self._running.ended_on(name) if attempt.received_s <= at_s])
        self._observer.gone(ReplicaGone(name, at_s, boot, running, ended))

    def connected(self, hello: records.Hello | None) -> None:
        if hello is not None:
            self._hear()
            self._next_seq = hello.next_seq
        self.itl.switch(hello is None, self._attempts())
        self._choose(self._clock())

    # Inside.

    def _hear(self) -> float:
        self._heard_s = now = self._clock()
        return now

    def _attempts(self) -> list[Attempt]:
        return list(self._running.on_replica(self.target.name))

    def _choose(self, now: float) -> None:
        if self._feed is not None and self._feed.connected:
            source = Source.steps
        elif self.scraper.answers:
            source = Source.metrics
        elif self.itl.speaks(now):
            source = Source.itl
        else:
            source = Source.none
        if source is not self._source:
            self._source, self._since_s = source, now

    async def _scrape(self) -> None:
        """While there is no step feed; with one, metrics would say less."""
        wait_s, pause_s = self._first_scrape_s, self._scrape_pause_s
        while True:
            await asyncio.sleep(wait_s)
            # One that has no metrics may have them later, but need not be asked as often.
            longest_s = self._scrape_pause_s * _LESS_OFTEN
            wait_s = pause_s = self._scrape_pause_s if self.scraper.answers else min(pause_s * 2.0, longest_s)
            if self._feed is not None and self._feed.connected:
                self.scraper.forget()
                continue
            answered = self.scraper.answers
            try:
                metrics = await self.scraper.scrape(self._clock())
                if metrics is not None:
                    self._observer.metrics(metrics)
            except Exception:
                log.exception("metrics_failed", replica=self.target.name)
            if self._feed is not None and self.scraper.answers and not answered:
                # It has come up: what a minute ago was no feed may be one now.
                self._feed.hurry()
