"""The admin port of a supervisor: the one that people and Prometheus see, whichever worker knows the answer.

What workers share is asked of any of them, and a change is told to any, since it reaches the others by what they share.
What each has its own part of is asked of all and put together. The rest is the supervisor's own: whether the gateway is
ready, its workers, their renewal and its end.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import orjson
import structlog
from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from gateway.control.api.operations import index
from gateway.control.api.reply import STREAMS, ApiError, end_streams, json_reply, openai_errors
from gateway.control.api.whoami import whoami
from gateway.control.auth import guard
from gateway.control.dashboard.page import Page, wants_page
from gateway.control.exposition import page
from gateway.workers.documents import merge_pools, merge_running
from gateway.workers.journal import Journal
from gateway.workers.merge import Merged
from gateway.workers.overviews import merge_steps
from gateway.workers.process import WorkerProcess
from gateway.workers.samples import collect, metrics
from gateway.workers.supervisor import NotRenewedError, Supervisor
from gateway.workers.watching import Watching

_ANSWER_WITHIN_S = 5.0
_RELOADED_WITHIN_S = 60.0
"""A file is read beside the requests, and after them: on a busy machine that takes its time."""
_RELOAD = "/api/v1/reload"
_LONGEST_BODY_BYTES = 64 * 1024 * 1024
_OURSELVES = 0
"""Among the processes whose metrics are merged; workers have keys from 1 on."""
_TO_ALL = ("/api/v1/pools/", "/api/v1/replicas/", _RELOAD)
"""Paths under which a change is each worker's own."""
_NOT_PASSED_ON = frozenset(
    ("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server", "accept-encoding")
)

_log = structlog.get_logger("steplane.supervisor")


class Front:
    """See the module. `address`: where it listens, once it has started."""

    def __init__(self, supervisor: Supervisor, end: Callable[[], None]) -> None:
        """`end`: called when somebody asks for the end of all."""
        self.address = ("", 0)
        self._end = end
        self._supervisor = supervisor
        self._merged = Merged()
        self._sessions: dict[int, aiohttp.ClientSession] = {}
        self._own = CollectorRegistry()
        self._own.register(WorkerMetrics(supervisor))
        ProcessCollector(registry=self._own)
        self._runner: web.AppRunner | None = None
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._journal = Journal()
        self._page = Page()
        self._watching = Watching(self._all_say, self._all_open)
        supervisor.on_retired = self._retired
        supervisor.prepare = self._prepare

    async def start(self) -> None:
        """Listen where the configuration says. Raises OSError."""
        app = web.Application(
            middlewares=[
                guard(lambda: self._supervisor.loaded.config.admin),
                openai_errors(lambda: f"those that GET / lists, and {', '.join(index(workers=True))}"),
            ],
            client_max_size=_LONGEST_BODY_BYTES,
        )
        app[STREAMS] = set()
        app.on_shutdown.append(end_streams)
        app.add_routes(self._page.routes())
        app.add_routes(self._watching.routes())
        app.add_routes(
            [
                web.get("/", self._index),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/api/v1/whoami", whoami),
                web.get("/api/v1/workers", self._workers),
                web.post("/api/v1/restart", self._restart),
                web.post("/api/v1/drain", self._drain),
                web.get("/api/v1/pools", self._pools),
                web.get("/api/v1/replicas", self._pools),
                web.get("/api/v1/quarantine/{key}", self._quarantined),
                web.get("/api/v1/quarantine/{key}/steps", self._steps),
                web.route("*", "/{path:.*}", self._forward),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        listen = self._supervisor.loaded.config.admin.listen
        await web.TCPSite(self._runner, listen.host, listen.port).start()
        self.address = self._runner.addresses[0][:2]

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
        await self._watching.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._sessions.values():
            await session.close()

    # --- of the supervisor itself

    async def _index(self, request: web.Request) -> web.Response:
        if wants_page(request):
            return await self._page.page(request)
        documents = await self._documents(request, self._asked())
        known: dict[str, Any] = documents[0] if documents else {"name": "steplane", "endpoints": {}}
        return json_reply(known | {"endpoints": known["endpoints"] | index(workers=True)})

    async def _healthz(self, _: web.Request) -> web.Response:
        return json_reply({"status": "alive"})

    async def _readyz(self, request: web.Request) -> web.Response:
        """Ready means: a balancer should send requests here, for at least one worker would serve them."""
        reason: str | None = None
        states: list[Any] = []
        if self._supervisor.draining:
            reason = "draining"
        else:
            workers = [worker for worker in self._supervisor.current if worker.accepting]
            states = await self._documents(request, workers, any_status=True)
            if not any(state.get("ready") for state in states):
                reason = next((state.get("reason") for state in states), None) or "no worker is ready"
        pools: dict[str, bool] = {}
        for state in states:
            for pool, available in state.get("pools", {}).items():
                pools[pool] = pools.get(pool, False) or available
        ready = {"ready": reason is None, "reason": reason, "pools": pools, "workers": len(states)}
        return json_reply(ready, status=200 if reason is None else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        workers = [worker for worker in self._supervisor.workers.values() if worker.ready]
        answers = await asyncio.gather(*(worker.ask_samples(_ANSWER_WITHIN_S) for worker in workers))
        for worker, families in zip(workers, answers, strict=True):
            # One that has ended meanwhile was counted when it did.
            if families is not None and worker.key in self._supervisor.workers:
                self._merged.seen(worker.key, families, worker.count)
        self._merged.seen(_OURSELVES, await collect(self._own))
        registry = CollectorRegistry()
        registry.register(_AsCollector(self._merged))
        body, content_type = await page(registry, request.headers.get("accept", ""))
        return web.Response(body=body, headers={"content-type": content_type})

    async def _workers(self, _: web.Request) -> web.Response:
        supervisor, now_s = self._supervisor, asyncio.get_running_loop().time()
        return json_reply(
            {
                "generation": supervisor.generation,
                "restarts": supervisor.restarts,
                "draining": supervisor.draining,
                "workers": [_worker_document(worker, now_s) for worker in supervisor.workers.values()],
            }
        )

    async def _restart(self, _: web.Request) -> web.Response:
        try:
            await self._supervisor.renew()
        except NotRenewedError as error:
            raise ApiError(409, "not_renewed", f"the workers go on as they were: {error}") from None
        return json_reply({"generation": self._supervisor.generation, "workers": self._supervisor.loaded.count})

    async def _drain(self, _: web.Request) -> web.Response:
        self._end()
        return json_reply({"draining": True}, status=202)

    # --- of the workers

    async def _pools(self, request: web.Request) -> web.Response:
        return await self._of_all(request, merge_pools)

    async def _quarantined(self, request: web.Request) -> web.Response:
        return await self._of_all(request, merge_running)

    async def _steps(self, request: web.Request) -> web.Response:
        return await self._of_all(request, merge_steps)

    async def _of_all(self, request: web.Request, merge: Callable[[Sequence[Any]], Any]) -> web.Response:
        """What all workers answer, put together; if none answers well, what one of them says."""
        workers = self._asked()
        documents = await self._documents(request, workers)
        return json_reply(merge(documents)) if documents else await self._passed_on(request, workers[:1])

    async def _forward(self, request: web.Request) -> web.Response:
        workers = self._asked()
        if request.method in ("GET", "HEAD") or not request.path.startswith(_TO_ALL):
            return await self._passed_on(request, workers[:1])
        reply = await self._passed_on(request, workers)
        if reply.status < 300 and isinstance(reply.body, bytes):
            self._journal.note(request.method, request.raw_path, await request.read(), orjson.loads(reply.body))
        return reply

    async def _prepare(self, worker: WorkerProcess) -> None:
        """Tell a new worker what people have changed; what there is no more to change is passed over."""
        for deed in self._journal.deeds:
            await self._say(worker, deed.method, deed.path, deed.body, {"content-type": "application/json"})

    async def _all_say(self, path: str) -> list[Any]:
        """What those answer to a GET who answer well."""
        workers = [worker for worker in self._supervisor.current if worker.ready]
        replies = await asyncio.gather(*(self._say(worker, "GET", path, b"", {}) for worker in workers))
        return _read(replies)

    def _all_open(self, path: str) -> list[AbstractAsyncContextManager[aiohttp.ClientResponse]]:
        """The answers of all to a GET that does not end; as long as they say something now and then."""
        timeout = aiohttp.ClientTimeout(sock_read=_ANSWER_WITHIN_S)
        return [self._session(worker).get(f"http://worker{path}", timeout=timeout) for worker in self._asked()]

    def _asked(self) -> list[WorkerProcess]:
        """The workers that may be asked, another one first each time. Raises ApiError where there are none."""
        workers = [worker for worker in self._supervisor.current if worker.ready]
        if not workers:
            raise ApiError(503, "no_worker", "no worker is ready to answer; the log says why, GET /api/v1/workers who")
        self._turn += 1
        at = self._turn % len(workers)
        return workers[at:] + workers[:at]

    async def _documents(
        self, request: web.Request, workers: Iterable[WorkerProcess], *, any_status: bool = False
    ) -> list[Any]:
        """What those answer who answer well."""
        replies = await asyncio.gather(*(self._ask(worker, request, b"") for worker in workers))
        return _read(replies, any_status=any_status)

    async def _passed_on(self, request: web.Request, workers: Sequence[WorkerProcess]) -> web.Response:
        """The answer of the first, or of the first that says no."""
        body = await request.read()
        replies = await asyncio.gather(*(self._ask(worker, request, body) for worker in workers))
        said = [reply for reply in replies if reply is not None]
        if not said:
            raise ApiError(502, "worker_gone", "the worker that was asked did not answer; ask again")
        return next((reply for reply in said if reply.status >= 300), said[0])

    async def _ask(self, worker: WorkerProcess, request: web.Request, body: bytes) -> web.Response | None:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON}
        return await self._say(worker, request.method, request.raw_path, body, headers)

    async def _say(
        self, worker: WorkerProcess, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> web.Response | None:
        within_s = _RELOADED_WITHIN_S if path.startswith(_RELOAD) else _ANSWER_WITHIN_S
        timeout = aiohttp.ClientTimeout(total=within_s)
        try:
            async with self._session(worker).request(
                method, f"http://worker{path}", data=body, headers=headers, timeout=timeout
            ) as reply:
                kept = {name: value for name, value in reply.headers.items() if name.lower() not in _NOT_PASSED_ON}
                return web.Response(status=reply.status, body=await reply.read(), headers=kept)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            _log.warning("worker does not answer", slot=worker.slot, pid=worker.pid, why=str(error) or repr(error))
            return None

    def _session(self, worker: WorkerProcess) -> aiohttp.ClientSession:
        session = self._sessions.get(worker.key)
        if session is None:
            session = self._sessions[worker.key] = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(str(worker.admin))
            )
        return session

    def _retired(self, worker: WorkerProcess) -> None:
        if worker.samples is not None:
            self._merged.seen(worker.key, worker.samples, worker.count)
        self._merged.gone(worker.key)
        session = self._sessions.pop(worker.key, None)
        if session is not None:
            task = asyncio.create_task(session.close())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class _AsCollector(Collector):
    def __init__(self, merged: Merged) -> None:
        self._merged = merged

    def collect(self) -> Iterable[Metric]:
        return metrics(self._merged.families())


class WorkerMetrics(Collector):
    """What only the supervisor knows."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterable[Metric]:
        supervisor = self._supervisor
        serving = [worker for worker in supervisor.current if worker.accepting]
        yield GaugeMetricFamily("steplane_workers", "Worker processes that there should be.", supervisor.loaded.count)
        yield GaugeMetricFamily("steplane_workers_serving", "Worker processes that take clients now.", len(serving))
        yield GaugeMetricFamily(
            "steplane_worker_generation", "How many times all workers were started.", supervisor.generation
        )
        yield CounterMetricFamily(
            "steplane_worker_restarts", "Workers that died and were started again.", supervisor.restarts
        )


def _worker_document(worker: WorkerProcess, now_s: float) -> dict[str, Any]:
    state = "leaving" if worker.leaving else "serving" if worker.accepting else "starting"
    return {
        "slot": worker.slot,
        "pid": worker.pid,
        "generation": worker.generation,
        "state": state,
        "accepts": worker.accepting,
        "runs_s": round(now_s - worker.began_s, 3),
        "budget": {pool: round(part, 4) for pool, part in worker.granted.items()},
    }


def _read(replies: Iterable[web.Response | None], *, any_status: bool = False) -> list[Any]:
    """What is in the good answers, or in all."""
    good = [reply for reply in replies if reply is not None and (any_status or reply.status < 300)]
    return [orjson.loads(reply.body) for reply in good if isinstance(reply.body, bytes)]
