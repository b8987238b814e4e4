"""The routes of the step feed.

GET  /steps       NDJSON stream; `after`, `boot`, `from=newest`, `min_hook_us`, `min_own_us`, `rollup_s`
GET  /summary     histograms of step, forward, hook and inter-token time; top offenders
GET  /stacks      recent offences with the step thread's Python stack
GET  /flamegraph  `seconds` (1-60): SVG by py-spy
POST /abort       {"rid": …, "reason": …}: end a request at the engine
GET  /health      200 while the engine lives, 503 after
"""

import asyncio
import hmac
import json
import socket
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from replica.feed.flamegraph import LONGEST_S, Flamegraph, FlamegraphError
from replica.feed.stream import Position, Wanted, clock_offset_s, stream_steps
from replica.feed.summary import Summary
from replica.recorder.records import decode
from replica.recorder.ring import RingReader

_SUMMARY_EVERY_S = 0.1
_RECORDS_AT_ONCE = 200
_MOST_BODY_BYTES = 65536
_LONGEST_RID = 1024
_LEAST_ROLLUP_S = 0.05


@dataclass(frozen=True, slots=True)
class Engine:
    """Who is measured. `link`: to its watchdog."""

    engine: str
    version: str
    rank: int
    pid: int
    link: socket.socket

    def document(self) -> dict[str, Any]:
        """For readers."""
        return {"engine": self.engine, "version": self.version, "rank": self.rank, "pid": self.pid}


class Feed:
    """State behind the routes. `engine_gone` is set by whoever watches the link."""

    def __init__(self, ring_fd: int, engine: Engine, token: str) -> None:
        self.engine_gone = asyncio.Event()
        self.summary = Summary()
        self._ring_fd = ring_fd
        self._engine = engine
        self._token = token.encode()
        self._reader = RingReader(ring_fd)
        self._flamegraph = Flamegraph(engine.pid)

    def app(self) -> web.Application:
        """The application that serves the routes."""
        app = web.Application(middlewares=[self._authorised()], client_max_size=_MOST_BODY_BYTES)
        app.add_routes(
            [
                web.get("/steps", self._steps, allow_head=False),
                web.get("/summary", self._summary),
                web.get("/stacks", self._stacks),
                web.get("/flamegraph", self._draw, allow_head=False),
                web.post("/abort", self._abort),
                web.get("/health", self._health),
            ]
        )
        return app

    async def summarise(self) -> None:
        """Take every record into the summary; runs until cancelled."""
        while True:
            more = self._take_in() == _RECORDS_AT_ONCE
            await asyncio.sleep(0.0 if more else _SUMMARY_EVERY_S)

    def _take_in(self) -> int:
        batch = self._reader.read(_RECORDS_AT_ONCE)
        self.summary.lost += batch.lost
        for seq, payload in batch.records:
            self.summary.add(decode(seq, payload))
        return len(batch.records)

    async def _steps(self, request: web.Request) -> web.StreamResponse:
        position, wanted = _asked(request)
        reader = RingReader(self._ring_fd)
        response = web.StreamResponse(
            headers={"content-type": "application/x-ndjson", "cache-control": "no-store", "x-accel-buffering": "no"}
        )
        await response.prepare(request)
        try:
            await stream_steps(response, reader, position, wanted, self._engine.document(), self.engine_gone.is_set)
        except ConnectionError:
            # Its reader left: nobody is there to tell.
            return response
        finally:
            reader.close()
        await response.write_eof()
        return response

    async def _summary(self, _request: web.Request) -> web.Response:
        self._take_in()
        live = self._reader.live()
        return _json(
            self._engine.document()
            | {
                "boot": self._reader.boot,
                "engine_gone": self.engine_gone.is_set(),
                "next_seq": self._reader.next_seq,
                "step_runs": bool(live.start_s),
            }
            | self.summary.document()
        )

    async def _stacks(self, _request: web.Request) -> web.Response:
        self._take_in()
        return _json({"offences": self.summary.stacks(clock_offset_s())})

    async def _draw(self, request: web.Request) -> web.Response:
        text = request.query.get("seconds", "5")
        if not text.isdecimal() or not 1 <= int(text[:9]) <= LONGEST_S:
            return _problem(400, f"seconds={text!r}: expected a whole number from 1 to {LONGEST_S}")
        try:
            svg = await self._flamegraph.draw(int(text))
        except FlamegraphError as error:
            return _problem(error.status, str(error))
        return web.Response(body=svg, content_type="image/svg+xml")

    async def _abort(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.read())
        except (ValueError, RecursionError):
            return _problem(400, 'the body is not JSON; expected {"rid": "…", "reason": "…"}')
        rid = body.get("rid") if isinstance(body, dict) else None
        reason = body.get("reason", "") if isinstance(body, dict) else None
        if not isinstance(rid, str) or not 0 < len(rid) <= _LONGEST_RID or not isinstance(reason, str):
            return _problem(400, 'expected {"rid": "…", "reason": "…"}, with the request\'s full id')
        line = json.dumps({"abort": rid, "reason": reason[:_LONGEST_RID]}).encode() + b"\n"
        try:
            await asyncio.get_running_loop().sock_sendall(self._engine.link, line)
        except OSError:
            return _problem(503, "the engine is gone")
        return _json({"rid": rid}, status=202)

    async def _health(self, _request: web.Request) -> web.Response:
        gone = self.engine_gone.is_set()
        return _json({"engine_gone": gone}, status=503 if gone else 200)

    def _authorised(self) -> Middleware:
        expected = b"Bearer " + self._token

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            given = request.headers.get("authorization", "").encode(errors="replace")
            if self._token and not hmac.compare_digest(given, expected):
                return _problem(
                    401, "this step feed wants the bearer token that STEPLANE_FEED_TOKEN holds at the engine"
                )
            return await handler(request)

        return check


def _asked(request: web.Request) -> tuple[Position, Wanted]:
    query = request.query
    try:
        after = int(query["after"]) if "after" in query else None
        hook_us, own_us, rollup_s = (
            _number(query.get(name, "0")) for name in ("min_hook_us", "min_own_us", "rollup_s")
        )
    except ValueError:
        raise web.HTTPBadRequest(
            text="after must be a sequence number, min_hook_us and min_own_us a number of microseconds and rollup_s a "
            "number of seconds\n"
        ) from None
    wanted = Wanted(hook_us, own_us, max(rollup_s, _LEAST_ROLLUP_S) if rollup_s else 0.0)
    return Position(query.get("boot", ""), after, query.get("from") == "newest"), wanted


def _number(text: str) -> float:
    number = float(text)
    if not number >= 0:
        raise ValueError(text)
    return number


def _json(fields: dict[str, Any], status: int = 200) -> web.Response:
    return web.json_response(fields, status=status)


def _problem(status: int, message: str) -> web.Response:
    return _json({"error": message}, status=status)
