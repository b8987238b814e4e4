"""`python -m loadtest.breaker`: from the first step over budget to the next request of its signature in quarantine.

A stream of an expensive grammar runs on a simulated replica; requests of the same signature are sent every few
milliseconds. Measured is from the end of the stream's first over-budget step, by the replica's own feed, to the first
of these requests that arrives at the quarantine replica (one that notes when). Once with one gateway, and once with two
that share a Redis: the stream at one, the requests at the other. Exit status 1 where the worst of all trials misses its
goal.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from aiohttp import web

from loadtest.breaker.site import Gateway, gateway, reads_feeds, redis_server, simulator
from loadtest.breaker.steps import StepReader
from loadtest.wire.rounds import free_port

BUDGET_US = 1000.0
GOAL_MS = {"one gateway": 100.0, "another gateway, by Redis": 250.0}
_EBNF = "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]"
"""Costs llguidance 2.4 ms a token, every token."""
_EVERY_S = 0.005
_TRIAL_S = 10.0
_CONFIGURATION = """\
default_pool: interactive
hookcost: {{grammar_backend: llguidance}}
timeouts: {{drain_s: 0}}
pools:
  interactive:
    replicas: [{{url: "{interactive}", name: interactive}}]
    step_budget_us: {budget_us}
  quarantine:
    replicas: [{{url: "{quarantine}", name: quarantine}}]
    feed: "off"
state: {state}
"""


class Arrivals:
    """A replica that answers at once and notes when a model was first asked for, in Unix time."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve; gives the URL."""
        app = web.Application()
        app.router.add_get("/health", _health)
        app.router.add_post("/v1/chat/completions", self._chat)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            await runner.cleanup()

    async def _chat(self, request: web.Request) -> web.Response:
        at = time.time()
        body = await request.json()
        self.first.setdefault(body["model"], at)
        return web.json_response({"choices": []})


async def _health(request: web.Request) -> web.Response:
    del request
    return web.Response()


def _bomb(model: str) -> dict[str, object]:
    message = {"role": "user", "content": "go on"}
    return {"model": model, "messages": [message], "max_tokens": 400, "stream": True, "ebnf": _EBNF}


async def _trial(at: Gateway, then: Gateway, model: str, steps: StepReader, arrivals: Arrivals) -> float | None:
    """Milliseconds of one trial; None where nothing tripped in time."""
    timeout = aiohttp.ClientTimeout(total=2 * _TRIAL_S)
    connector = aiohttp.TCPConnector(limit=0)
    sent: list[asyncio.Task[None]] = []
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def send(base: str) -> None:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.post(f"{base}/v1/chat/completions", json=_bomb(model)) as response:
                    await response.read()

        async with session.post(f"{at.url}/v1/chat/completions", json=_bomb(model)) as stream:
            rid = stream.headers["x-request-id"]
            reading = asyncio.create_task(stream.read())
            deadline = time.monotonic() + _TRIAL_S
            while model not in arrivals.first and time.monotonic() < deadline:
                sent.append(asyncio.create_task(send(then.url)))
                await asyncio.sleep(_EVERY_S)
            for task in (reading, *sent):
                task.cancel()
            await asyncio.gather(reading, *sent, return_exceptions=True)
    first_over = steps.requests[rid].first_over(BUDGET_US)
    arrived = arrivals.first.get(model)
    return None if first_over is None or arrived is None else (arrived - first_over) * 1e3


async def _measure(trials: int, folder: Path) -> bool:
    arrivals = Arrivals()
    async with (
        simulator("interactive", folder) as interactive,
        arrivals.served() as quarantine,
        redis_server(folder) as redis,
    ):
        met = True
        for what, goal_ms in GOAL_MS.items():
            shared = what != "one gateway"
            state = f'{{redis: {{url: "{redis}"}}}}' if shared else "memory"
            text = _CONFIGURATION.format(
                interactive=interactive, quarantine=quarantine, budget_us=BUDGET_US, state=state
            )
            async with (
                gateway("a", text, folder) as first,
                gateway("b", text, folder) as second,
                StepReader(interactive) as steps,
            ):
                await reads_feeds(first, 1)
                then = second if shared else first
                found: list[float] = []
                for number in range(trials):
                    ms = await _trial(first, then, f"{what}-{number}", steps, arrivals)
                    if ms is None:
                        print(f"  trial {number}: nothing was quarantined within {_TRIAL_S:g} s")
                        met = False
                    else:
                        found.append(ms)
                if found:
                    step_ms = statistics.median(steps.step_us) / 1e3
                    print(
                        f"{what:28} median {statistics.median(found):6.1f} ms  worst {max(found):6.1f} ms  "
                        f"goal {goal_ms:g} ms  ({len(found)} trials; median step {step_ms:.1f} ms)"
                    )
                    met = met and max(found) <= goal_ms
    return met


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.breaker", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20, help="signatures that trip, each way (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return 0 if asyncio.run(_measure(options.trials, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
