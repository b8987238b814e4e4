"""Active health checks: asks every replica whether it is up, and says so to its `set_healthy`.

Owns the probes and the record of each replica's state. Knows no pool, no rule and no request. A replica begins as not
available and is probed at once, so that it takes traffic from its first good answer on. "Busy" is not "dead": only an
answer other than 200, a broken connection or silence counts; silence only after several probes, and not while the
replica's responses make progress (SGLang's `/health` waits for the engine's next step); a refused connection is
conclusive, since nothing listens there. Nor does one take traffic that serves another model than it should
(servedmodel.py). Whoever wants to know is told of each that may have been started anew, before it takes traffic.
"""

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from errno import ECONNREFUSED, EMFILE, ENFILE, ENOBUFS, ENOMEM
from typing import Any, Protocol

import structlog

from gateway.feed.reach import Reach
from gateway.feed.servedmodel import served_models
from gateway.feed.session import ReplicaSession, open_session
from gateway.feed.statusprobe import StatusProbe

_PROBE_EJECTED_S = 0.25
"""A replica that is down is asked at least this often, so that it is back well within a second of its restart."""

_START_SPREAD_S = 0.002
"""First probes of many replicas begin this far apart on average, instead of all in one loop turn."""

_MODEL_EVERY = 30
"""Good probes of a replica that is up between two looks at its model."""

_OUR_OWN = frozenset((EMFILE, ENFILE, ENOBUFS, ENOMEM))
"""This process has no file, or no memory, left for a probe: that says nothing of the replica."""

_log = structlog.get_logger("steplane.health")


class Target(Protocol):
    """What the monitor needs of a replica."""

    name: str
    url: str

    def set_healthy(self, healthy: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """How a replica is checked; durations in seconds, counts in probes in a row."""

    path: str = "/health"
    interval_s: float = 1.0
    timeout_s: float = 5.0
    eject_after: int = 3
    readmit_after: int = 1
    model: str | None = None
    """What it must serve; None: anything."""


@dataclass(slots=True)
class HealthRecord:
    """What is known of one replica.

    up:          takes traffic.
    since:       clock reading of the last change of `up`, or of the start.
    last_error:  why the last failed probe failed, kept while the replica is down; None when all is well.
    latency_s:   time of the last good probe.
    fresh:       it may have been started anew since it was last up: it was down, and not merely silent, or its engine
                 was said to have ended.
    """

    policy: HealthPolicy
    since: float
    up: bool = False
    probes: int = 0
    failures_in_row: int = 0
    successes_in_row: int = 0
    last_error: str | None = None
    latency_s: float | None = None
    fresh: bool = True

    def succeed(self, now: float, latency_s: float) -> bool:
        """Note a good probe. True when the replica comes up by it."""
        self.probes += 1
        self.failures_in_row = 0
        self.successes_in_row += 1
        self.latency_s = latency_s
        if self.up:
            self.last_error = None
            return False
        # The first answer of all needs no confirmation: there was no failure that it would have to outweigh.
        if self.successes_in_row < self.policy.readmit_after and self.last_error is not None:
            return False
        self.up, self.since, self.last_error = True, now, None
        return True

    def fail(self, now: float, error: str, *, conclusive: bool = False, silent: bool = False) -> bool:
        """Note a failed probe. True when the replica goes down by it; `conclusive` does so without waiting for more.

        silent: it gave no answer, which says nothing of a restart.
        """
        self.probes += 1
        self.successes_in_row = 0
        self.failures_in_row += 1
        self.last_error = error
        goes_down = self.up and (self.failures_in_row >= self.policy.eject_after or conclusive)
        if goes_down:
            self.up, self.since = False, now
        if not self.up and not silent:
            self.fresh = True
        return goes_down


@dataclass(slots=True)
class _Watch:
    target: Target
    record: HealthRecord
    asking: StatusProbe | None = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to cut the wait for the next probe short."""
    came_up: asyncio.Event = field(default_factory=asyncio.Event)
    probed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the first probe."""
    counted: bool = False
    """For `all_probed`."""
    task: asyncio.Task[None] | None = None


class HealthMonitor:
    """Probes replicas until closed. All methods belong to one event loop."""

    def __init__(
        self,
        targets: Iterable[tuple[Target, HealthPolicy]],
        *,
        clock: Callable[[], float],
        last_progress: Callable[[Target], float] = lambda _: -math.inf,
        random_source: random.Random | None = None,
        reach: Reach | None = None,
    ) -> None:
        """`clock` gives seconds, and is only read; `random_source` spreads the probes of many replicas over time.

        last_progress: reading of the same clock when a replica last sent a byte of a response.
        """
        self.started: Callable[[Any], None] = _nobody
        """Is told of each target that is up for the first time, or for the first time since it may have been started
        anew, before it is told itself."""
        self._clock = clock
        self._last_progress = last_progress
        self._random = random_source or random.Random()
        self._reach = reach
        self._watches = {id(target): _Watch(target, HealthRecord(policy, since=clock())) for target, policy in targets}
        self._ending: set[asyncio.Task[None]] = set()
        self._session: ReplicaSession | None = None
        self._unprobed = len(self._watches)
        self._all_probed = asyncio.Event()
        if not self._watches:
            self._all_probed.set()

    async def start(self) -> None:
        """Begin probing; returns at once."""
        self._session = open_session("health", self._reach)
        for watch in self._watches.values():
            self._begin(self._session, watch)

    async def close(self) -> None:
        """Stop probing. Replicas keep the state they have."""
        for watch in self._watches.values():
            self._end(watch)
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def add(self, target: Target, policy: HealthPolicy) -> None:
        """Probe one more replica, which takes no traffic before its first good answer."""
        watch = self._watches[id(target)] = _Watch(target, HealthRecord(policy, since=self._clock()))
        if self._session is not None:
            watch.counted = True  # whether all were probed is asked of those there were at the start
            self._begin(self._session, watch)
        else:
            self._unprobed += 1
            self._all_probed.clear()

    def remove(self, target: Target) -> None:
        """Probe a replica no more; it keeps the state it has."""
        watch = self._watches.pop(id(target), None)
        if watch is None:
            return
        self._end(watch)
        watch.came_up.set()  # nobody shall wait for it any longer
        watch.probed.set()
        self._count_probed(watch)

    def reconfigure(self, target: Target, policy: HealthPolicy) -> None:
        """Probe a replica by another policy, from now on; what is known of it is kept."""
        watch = self._watches[id(target)]
        if watch.record.policy != policy:
            watch.record.policy = policy
            watch.hurry.set()

    @property
    def all_probed(self) -> bool:
        """Whether every replica that was there at the start has been probed at least once."""
        return self._all_probed.is_set()

    async def wait_all_probed(self) -> None:
        """Return when every replica has been probed at least once."""
        await self._all_probed.wait()

    async def wait_any_up(self, targets: Sequence[Target], most_s: float) -> None:
        """Return when one of these is up or all have been probed, after `most_s` seconds in any case."""
        watches = [self._watches[id(target)] for target in targets]
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(watch.came_up.wait()) for watch in watches]
        waits.append(asyncio.gather(*[watch.probed.wait() for watch in watches]))
        try:
            await asyncio.wait(waits, timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def wait_all_up(self) -> None:
        """Return when every replica has been up at least once."""
        for watch in list(self._watches.values()):
            await watch.came_up.wait()

    def record(self, target: Target) -> HealthRecord:
        """What is known of a replica. Raises KeyError for one that is not watched."""
        return self._watches[id(target)].record

    def state_age_s(self, target: Target) -> float:
        """How long a replica has been up, or down."""
        return self._clock() - self.record(target).since

    def report_refused(self, target: Target) -> None:
        """The data plane was refused a connection: eject the replica now, and ask it again soon."""
        watch = self._watches.get(id(target))
        if watch is None or not watch.record.up:
            return
        self._failed(watch, "connection refused", conclusive=True)
        watch.hurry.set()

    def report_ended(self, target: Target) -> None:
        """Its engine has ended, by its own account or that of the one that has followed it: ask it again soon."""
        watch = self._watches.get(id(target))
        if watch is not None:
            watch.record.fresh = True
            watch.hurry.set()

    def _begin(self, session: ReplicaSession, watch: _Watch) -> None:
        watch.task = asyncio.create_task(self._watch(session, watch), name=f"health of {watch.target.name}")

    def _end(self, watch: _Watch) -> None:
        task, watch.task = watch.task, None
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _watch(self, session: ReplicaSession, watch: _Watch) -> None:
        try:
            await self._watch_on(session, watch)
        finally:
            if watch.asking is not None:
                watch.asking.close()

    async def _watch_on(self, session: ReplicaSession, watch: _Watch) -> None:
        interval_s = watch.record.policy.interval_s
        await asyncio.sleep(self._random.uniform(0, min(interval_s, _START_SPREAD_S * len(self._watches))))
        while True:
            await self._probe(session, watch)
            watch.probed.set()
            self._count_probed(watch)
            interval_s = watch.record.policy.interval_s
            pause_s = interval_s if watch.record.up else min(interval_s, _PROBE_EJECTED_S)
            # Spread by a tenth, so that replicas started together drift apart.
            await _pause(watch.hurry, pause_s * self._random.uniform(0.9, 1.0))

    def _count_probed(self, watch: _Watch) -> None:
        if watch.counted:
            return
        watch.counted = True
        self._unprobed -= 1
        if self._unprobed == 0:
            self._all_probed.set()

    async def _probe(self, session: ReplicaSession, watch: _Watch) -> None:
        policy = watch.record.policy
        began = self._clock()
        try:
            async with asyncio.timeout(policy.timeout_s):
                status = await self._asking(watch, policy.path).get()
        except TimeoutError:
            if self._last_progress(watch.target) < began:
                self._failed(watch, f"no answer on {policy.path} within {policy.timeout_s:g} s", silent=True)
            else:
                watch.record.probes += 1  # busy: its responses went on meanwhile
        except Exception as error:  # whatever it is: a probe that can't be made must show, not end the watch
            if isinstance(error, OSError) and error.errno in _OUR_OWN:
                watch.record.probes += 1
                return
            refused = isinstance(error, OSError) and error.errno == ECONNREFUSED
            self._failed(watch, "connection refused" if refused else _said(error), conclusive=refused)
        else:
            latency_s = self._clock() - began
            if status != 200:
                self._failed(watch, f"{policy.path} answered {status}")
            elif policy.model is None:
                self._succeeded(watch, latency_s)
            else:
                await self._probe_model(session, watch, policy.model, latency_s)

    def _asking(self, watch: _Watch, path: str) -> StatusProbe:
        asking = watch.asking
        if asking is None or asking.path != path:
            if asking is not None:
                asking.close()
            asking = watch.asking = StatusProbe(watch.target.url, path, self._reach)
        return asking

    async def _probe_model(self, session: ReplicaSession, watch: _Watch, model: str, latency_s: float) -> None:
        """It is well: it may take traffic if it serves what it should. Asked before it does, and now and then."""
        record = watch.record
        if record.up and not record.fresh and record.probes % _MODEL_EVERY:
            self._succeeded(watch, latency_s)
            return
        served = await served_models(session, watch.target.url, record.policy.timeout_s)
        if served is None or model in served:
            self._succeeded(watch, latency_s)
        else:
            said = f"it serves {', '.join(served) or 'no model'} where {model} is wanted"
            if said != record.last_error:
                _log.warning("replica serves another model", replica=watch.target.name, served=served, wanted=model)
            self._failed(watch, said, conclusive=True)

    def _succeeded(self, watch: _Watch, latency_s: float) -> None:
        record = watch.record
        came_up = record.succeed(self._clock(), latency_s)
        if record.up and record.fresh:
            record.fresh = False
            try:
                self.started(watch.target)
            except Exception:
                _log.exception("start_not_told", replica=watch.target.name)
        if came_up:
            watch.target.set_healthy(True)
            watch.came_up.set()
            _log.info("replica is up", replica=watch.target.name, url=watch.target.url)

    def _failed(self, watch: _Watch, error: str, *, conclusive: bool = False, silent: bool = False) -> None:
        if watch.record.fail(self._clock(), error, conclusive=conclusive, silent=silent):
            watch.target.set_healthy(False)
            _log.warning("replica is down", replica=watch.target.name, url=watch.target.url, error=error)


def _nobody(target: object) -> None:
    """Nobody wants to know."""


async def _pause(hurry: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await hurry.wait()
    except TimeoutError:
        return
    hurry.clear()


def _said(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
