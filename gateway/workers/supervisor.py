"""The supervisor: starts the workers of a gateway, watches them, renews them, and has an end of all of them.

A worker that dies is started again, for ever, with pauses that grow while it doesn't last; one whose loop hangs is
ended. Renewing starts a new generation beside the old one and lets the old go only when all of the new are ready.
Carries no request, and does nothing while nothing happens but to look once a second whether all are alive.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from gateway.control.config import Config, read_config
from gateway.control.document import Document
from gateway.control.problem import ConfigError
from gateway.control.workersconfig import worker_count
from gateway.retry.pauses import Pauses
from gateway.state.booksserver import BooksServer
from gateway.workers.assignment import assign
from gateway.workers.lending import is_bounded
from gateway.workers.listeners import Listeners
from gateway.workers.messages import PROTOCOL, Hello
from gateway.workers.process import WorkerProcess
from gateway.workers.shares import Alone, Holding, divide, first_part, who_alone

_PAUSE_S = (0.1, 30.0)
"""Before a worker is started again: the first, doubled each time, and the longest."""
_STEADY_S = 60.0
"""A worker that ran for so long begins again with the shortest pause."""
_READY_WITHIN_S = 120.0
_LOOK_EVERY_S = 1.0
"""Whether workers hang. Looks are counted, not time: a supervisor that was stopped has heard nobody meanwhile."""
_OVERTIME_S = 10.0
"""After its time to drain a worker that is still there is killed."""

_log = structlog.get_logger("steplane.supervisor")


class NotRenewedError(Exception):
    """Workers that were not renewed; the old ones go on. Says why."""


class NotStartedError(Exception):
    """Workers that did not come up at the start."""


@dataclass(slots=True)
class Loaded:
    """A configuration, and the plain data that it was made of, as the workers make theirs. `count`: of workers."""

    path: Path
    document: Document
    config: Config
    count: int


def load(path: Path, workers: int | None = None) -> Loaded:
    """Read and check a configuration file. `workers`: in place of its own. Raises ConfigError."""
    document, config = read_config(path)
    return Loaded(path, document, config, workers or worker_count(config.workers))


class Supervisor:
    """See the module. All of it belongs to one event loop.

    generation: how many times all workers were started, of those that have the clients. restarts: of single ones.
    workers:    all whose processes are there, by key.
    prepare:    awaited for each worker that has become ready, before it gets clients.
    on_retired: called with a worker that has ended, when all that it said was heard.
    """

    def __init__(self, loaded: Loaded, workers: int | None = None) -> None:
        """`workers`: their number, in place of the configuration's, also of those that are read later."""
        self.loaded = loaded
        self.generation = 0
        self.restarts = 0
        self.draining = False
        self.renewing = False
        self.workers: dict[int, WorkerProcess] = {}
        self.prepare: Callable[[WorkerProcess], Awaitable[None]] = _as_it_is
        self.on_retired: Callable[[WorkerProcess], None] = _nobody
        self._workers_wanted = workers
        self._folder = tempfile.TemporaryDirectory(prefix="steplane-")
        self._books = BooksServer()
        self._listeners: Listeners | None = None
        self._pauses: dict[int, Pauses] = {}
        self._reloads_seen: dict[int, int] = {}
        self._alone: dict[str, int] = {}
        """By pool, who had last the right to exceed its part."""
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- the whole life

    async def start(self) -> None:
        """Bind the ports and start the first workers; returns when all are ready. Raises OSError, NotStartedError."""
        self._listeners = Listeners(self.loaded.config.listen, self.loaded.count)
        await self._books.start(self._books_path)
        first = await self._start_generation(self.loaded)
        if not await self._came_up(first):
            raise NotStartedError("a worker did not come up; what it said stands above")
        self._keep(first)
        await self._all_accept(first)
        self._spawn(self._watch())

    @property
    def places(self) -> list[str]:
        """Where clients connect, as a client would write it."""
        assert self._listeners is not None
        places = zip(self._listeners.places, self.loaded.config.listen, strict=True)
        return [config.model_copy(update={"address": address}).url for address, config in places]

    @property
    def current(self) -> list[WorkerProcess]:
        """The workers that have the clients, or will have them when they are ready."""
        return [worker for worker in self.workers.values() if worker.kept and not worker.leaving]

    async def drain(self) -> None:
        """Have all end in good order; returns when they have."""
        self.draining = True
        timeouts = self.loaded.config.timeouts
        for worker in self.workers.values():
            worker.drain(handed_over=False)
            self._see_off(worker, timeouts.drain_delay_s + timeouts.drain_s)
        while self.workers:
            await self._changed.wait()

    async def close(self) -> None:
        """End everything now."""
        self.draining = True
        for worker in self.workers.values():
            worker.kill()
        while self.workers:
            await self._changed.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._books.close()
        if self._listeners is not None:
            self._listeners.close()
        self._folder.cleanup()

    async def renew(self) -> None:
        """New workers, of the code and the configuration that are there now, in place of the old ones.

        Returns when the new ones have the clients; the old ones finish what runs. Raises NotRenewedError.
        """
        if self.draining:
            raise NotRenewedError("the gateway is on its way out")
        if self.renewing:
            raise NotRenewedError("the workers are being renewed already")
        self.renewing = True
        try:
            await self._renew()
        finally:
            self.renewing = False

    async def reload(self) -> None:
        """Have the workers read the configuration again, if it is one. Raises NotRenewedError."""
        try:
            await asyncio.to_thread(load, self.loaded.path)
        except ConfigError as error:
            raise NotRenewedError(f"the configuration has problems: {error}") from None
        for worker in self.current:
            worker.reload()

    async def _renew(self) -> None:
        assert self._listeners is not None
        loaded = await asyncio.to_thread(self._read_again)
        try:
            self._listeners.grow(loaded.count)
            new = await self._start_generation(loaded)
        except OSError as error:
            raise NotRenewedError(f"new workers can't be started: {error}") from None
        if not await self._came_up(new) or self.draining:
            for worker in new:
                worker.kill()
            raise NotRenewedError("a new worker did not come up; what it said stands in the log")
        old = self.current
        for worker in old:
            worker.leaving = True
        self.loaded = loaded
        self._keep(new)
        # Only when the new ones listen may the old ones stop: then there is no moment without.
        await self._all_accept(new)
        for worker in old:
            worker.drain(handed_over=True)
            self._see_off(worker, self.loaded.config.timeouts.hand_over_s)
        _log.info("workers renewed", generation=self.generation, workers=len(new))

    async def _read_what_they_have(self) -> None:
        """Workers have taken over another configuration: one that is started in the place of another begins with it."""
        with suppress(ConfigError):  # it has changed again, for the worse
            loaded = await asyncio.to_thread(load, self.loaded.path)
            # Which sockets there are, and how many workers, is changed by a renewal alone.
            if loaded.config.listen == self.loaded.config.listen:
                loaded.count = self.loaded.count
                self.loaded = loaded
                self._share()  # pools may have got their first budget, of which every worker has all until it is told

    def _read_again(self) -> Loaded:
        try:
            loaded = load(self.loaded.path, self._workers_wanted)
        except ConfigError as error:
            raise NotRenewedError(f"the configuration has problems: {error}") from None
        before, after = self.loaded.config, loaded.config
        for name in ("listen", "admin", "state"):
            if getattr(before, name) != getattr(after, name):
                raise NotRenewedError(f"`{name}` has changed, for which all must be stopped and started")
        return loaded

    # --- generations and single workers

    async def _start_generation(self, loaded: Loaded) -> list[WorkerProcess]:
        return [await self._start_worker(slot, loaded, self.generation + 1) for slot in range(loaded.count)]

    async def _came_up(self, workers: Sequence[WorkerProcess]) -> bool:
        """Whether all become ready in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_WITHIN_S):
                while not all(worker.ready for worker in workers):
                    if any(worker.ended for worker in workers):
                        return False
                    await self._changed.wait()
        if not all(worker.ready and not worker.ended for worker in workers):
            return False
        await asyncio.gather(*(self.prepare(worker) for worker in workers))
        return True

    def _keep(self, workers: Sequence[WorkerProcess]) -> None:
        """Their generation is the one that counts: clients are theirs, and whoever of them dies is started again."""
        self.generation += 1
        for worker in workers:
            worker.kept = True
        self._assign()

    async def _all_accept(self, workers: Sequence[WorkerProcess]) -> None:
        while any(worker.accepting != worker.accepts and not worker.ended for worker in workers):
            await self._changed.wait()

    async def _start_worker(self, slot: int, loaded: Loaded, generation: int) -> WorkerProcess:
        assert self._listeners is not None
        worker = WorkerProcess(slot, generation, loaded.count, Path(self._folder.name), self._heard)
        document = loaded.document
        hello = Hello(
            protocol=PROTOCOL,
            slot=slot,
            sockets={
                number: [(listener, sock.fileno()) for listener, sock in sockets]
                for number, sockets in enumerate(self._listeners.slots)
            },
            document=document.data,
            file=document.file,
            files=list(document.files),
            origins=[(list(location), origin) for location, origin in document.origins.items()],
            folder=str(loaded.config.folder),
            admin=str(worker.admin),
            books=str(self._books_path),
            shares={
                pool: first_part(self._holdings(pool))
                for pool, config in loaded.config.pools.items()
                if is_bounded(config)
            },
        )
        await worker.start(hello)
        self.workers[worker.key] = worker
        _log.info("worker started", slot=slot, pid=worker.pid, generation=generation)
        return worker

    def _heard(self, worker: WorkerProcess) -> None:
        """A worker has ended, or said something else than its metrics."""
        if worker.ended:
            self._retired(worker)
        self._share()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if self._reloads_seen.get(worker.key, 0) < worker.reloads:
            self._reloads_seen[worker.key] = worker.reloads
            self._spawn(self._read_what_they_have())

    def _retired(self, worker: WorkerProcess) -> None:
        del self.workers[worker.key]
        self._reloads_seen.pop(worker.key, None)
        self.on_retired(worker)
        if worker.leaving or self.draining or not worker.kept:
            if worker.returncode:
                _log.warning("worker ended", slot=worker.slot, pid=worker.pid, how=worker.epitaph)
            return
        self._assign()
        pauses = self._pauses.setdefault(worker.slot, Pauses(*_PAUSE_S))
        if asyncio.get_running_loop().time() - worker.began_s > _STEADY_S:
            pauses.reset()
        pause_s = pauses.next_s()
        _log.error("worker died", slot=worker.slot, pid=worker.pid, how=worker.epitaph, restart_in_s=round(pause_s, 3))
        self._spawn(self._replace(worker.slot, pause_s))

    async def _replace(self, slot: int, pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            # Meanwhile all may have been renewed.
            if self.draining or slot >= self.loaded.count or any(worker.slot == slot for worker in self.current):
                return
            self.restarts += 1
            try:
                worker = await self._start_worker(slot, self.loaded, self.generation)
            except OSError as error:
                pause_s = self._pauses[slot].next_s()
                _log.error("worker can't be started", slot=slot, why=str(error), again_in_s=round(pause_s, 3))
                continue
            worker.kept = True
            if not await self._came_up([worker]) and not worker.ended:
                worker.terminate()
            self._assign()
            return

    def _see_off(self, worker: WorkerProcess, within_s: float) -> None:
        """Kill it if it is still there well after its time is over."""

        async def wait() -> None:
            try:
                async with asyncio.timeout(within_s + _OVERTIME_S):
                    while not worker.ended:
                        await self._changed.wait()
            except TimeoutError:
                _log.error("worker does not end; it is killed", slot=worker.slot, pid=worker.pid)
                worker.kill()

        self._spawn(wait())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            patience_s = self.loaded.config.worker_silent_s
            for worker in self.workers.values():
                if worker.silent is None:
                    continue
                worker.silent += 1
                if worker.silent * _LOOK_EVERY_S > patience_s:
                    worker.silent = None
                    _log.error("worker hangs and is ended", slot=worker.slot, pid=worker.pid, silent_s=patience_s)
                    self._spawn(worker.end_hanging())

    # --- what they share

    def _assign(self) -> None:
        assert self._listeners is not None
        owners: dict[int, WorkerProcess] = {}
        for worker in self.current:
            # The later of two of one slot is of the later generation.
            if worker.ready and not worker.ended:
                owners[worker.slot] = worker
        assigned = assign(len(self._listeners.slots), [(slot, worker.key) for slot, worker in owners.items()])
        for worker in owners.values():
            worker.accept(assigned[worker.key])

    def _holdings(self, pool: str) -> dict[int, Holding]:
        holdings = {}
        for key, worker in self.workers.items():
            granted = worker.ceilings.get(pool, 0.0)
            demand = worker.demands.get(pool)
            holdings[key] = Holding(
                granted=granted,
                part=granted if demand is None else demand.part,
                held=0.0 if demand is None else demand.held,
                waiting=0 if demand is None else demand.waiting,
                leaving=worker.leaving,
            )
        return holdings

    def _share(self) -> None:
        granted: dict[int, dict[str, float]] = {}
        alone: dict[int, set[str]] = {}
        for pool, config in self.loaded.config.pools.items():
            if not is_bounded(config):
                continue
            for key, part in divide(self._holdings(pool)).items():
                granted.setdefault(key, {})[pool] = part
            holder = who_alone(self._alone.get(pool, 0), self._rights(pool))
            if holder is not None:
                self._alone[pool] = holder
                alone.setdefault(holder, set()).add(pool)
        for key, worker in self.workers.items():
            worker.grant(granted.get(key, {}), alone.get(key, set()))

    def _rights(self, pool: str) -> dict[int, Alone]:
        rights = {}
        for key, worker in self.workers.items():
            demand = worker.demands.get(pool)
            has = demand is not None and demand.has_alone
            rights[key] = Alone(
                wants=demand is not None and demand.wants_alone,
                busy=pool in worker.alone or has or not worker.has_heard,
                leaving=worker.leaving,
            )
        return rights

    @property
    def _books_path(self) -> Path:
        return Path(self._folder.name) / "books"

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _as_it_is(worker: WorkerProcess) -> None:
    """Nothing is to be done."""


def _nobody(worker: WorkerProcess) -> None:
    """Nobody wants to know."""
