"""An engine that is nothing but its prefix cache: it answers at once, and counts how much of each prompt it knew.

`python -m loadtest.bench_routing.cachedengine PORT…` serves one replica on each port. The cache holds blocks of the
prompt's text, the least recently used out first, as the KV cache of a real engine does. `GET /counts` tells, and
`POST /flush_cache` forgets, which is also what routers that look for an SGLang server find here.
"""

import asyncio
import sys
from collections import OrderedDict

import orjson
from aiohttp import web

from loadtest.bench_routing.conversations import REPLY, prompt_of

_BLOCK = 64
"""Characters: a page of sixteen tokens."""
CACHED_BLOCKS = 6_000
"""Of one replica."""
_WORKS_S = 0.02
_MODEL = "m"


class CachedEngine:
    """One replica."""

    def __init__(self) -> None:
        self._cache: OrderedDict[int, None] = OrderedDict()
        self.known = self.asked = self.requests = 0

    def app(self) -> web.Application:
        """The HTTP of it."""
        app = web.Application(client_max_size=1 << 26)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._complete),
                web.get("/counts", self._counts),
                web.post("/flush_cache", self._flush),
                web.get("/v1/models", _models),
                web.get("/health", _fine),
                web.get("/health_generate", _fine),
                web.get("/get_server_info", _info),
                web.get("/server_info", _info),
                web.get("/get_model_info", _info),
                web.get("/model_info", _info),
                web.get("/get_load", _load),
                web.get("/v1/loads", _load),
            ]
        )
        return app

    async def _complete(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.take(prompt_of(body["messages"]))
        await asyncio.sleep(_WORKS_S)
        choice = {"index": 0, "message": {"role": "assistant", "content": REPLY}, "finish_reason": "stop"}
        return web.json_response(
            {
                "id": "c",
                "object": "chat.completion",
                "created": 0,
                "model": _MODEL,
                "choices": [choice],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        )

    def take(self, prompt: str) -> None:
        """Count how much of a prompt is known, and remember all of it."""
        self.requests += 1
        self.asked += len(prompt)
        above, known = 0, True
        for at in range(0, len(prompt) - _BLOCK + 1, _BLOCK):
            above = hash((above, prompt[at : at + _BLOCK]))
            known = known and above in self._cache
            self.known += _BLOCK * known
            self._cache[above] = None
            self._cache.move_to_end(above)
        while len(self._cache) > CACHED_BLOCKS:
            self._cache.popitem(last=False)

    async def _counts(self, _: web.Request) -> web.Response:
        return web.json_response({"known": self.known, "asked": self.asked, "requests": self.requests})

    async def _flush(self, _: web.Request) -> web.Response:
        self._cache.clear()
        self.known = self.asked = self.requests = 0
        return web.Response()


async def _fine(_: web.Request) -> web.Response:
    return web.Response()


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": _MODEL, "object": "model", "owned_by": "sglang"}]})


async def _info(_: web.Request) -> web.Response:
    return web.json_response({"model_path": _MODEL, "served_model_name": _MODEL, "is_generation": True})


async def _load(_: web.Request) -> web.Response:
    return web.json_response({"loads": []})


async def _serve(ports: list[int]) -> None:
    for port in ports:
        runner = web.AppRunner(CachedEngine().app(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve([int(each) for each in sys.argv[1:]]))
