"""What is told of requests that really went through, and to whom."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from gateway.hookcost.observation import Origin, StepObservation
from tests.integration.gateway.harness import CHAT, PLAIN, House, house, until

SECRET = "nobody shall read this"
ASKED = {
    **PLAIN[CHAT],
    "messages": [{"role": "user", "content": SECRET}],
    "response_format": {"type": "json_schema", "json_schema": {"name": SECRET, "schema": {"type": "object"}}},
}


@contextlib.asynccontextmanager
async def tail(running: House) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The events of `/api/v1/decisions`."""
    host, port = running.gateway.admin_address

    async def read(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
        async for line in response.content:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))

    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}/api/v1/decisions") as response,
    ):
        yield read(response)


async def test_a_request_is_told_with_its_features_and_cost_while_somebody_watches_and_never_its_text() -> None:
    async with house() as running:
        proxy = running.gateway._proxy
        assert proxy is not None
        await running.ask(CHAT, ASKED)
        assert proxy.tail is None

        async with tail(running) as events:
            assert await anext(events) == {"decisions": [], "left_out": 0}
            await running.ask(CHAT, ASKED, "authorization: Bearer key-of-somebody")
            told: list[dict[str, Any]] = []
            while not told:
                told = (await anext(events))["decisions"]

        (decision,) = told
        assert decision.items() >= {"pool": "grammar", "rule": "structured", "status": 200}.items()
        assert decision["replica"] == "grammar-0"
        assert decision["features"]["grammar"] == "json_schema"
        assert decision["step_us"] > 0
        # The loop's clock tells milliseconds: an answer may come within the one its request came in.
        assert decision["took_ms"] >= decision["ttft_ms"] >= 0
        assert SECRET not in json.dumps(decision)
        assert "key-of-somebody" not in json.dumps(decision)
        # It hears that nobody watches when it has something to say, at the latest after a second.
        await until(lambda: proxy.tail is None)


async def test_a_request_of_a_barred_signature_is_portrayed_by_the_first_that_comes() -> None:
    async with house() as running:
        signature = (await running.post("/api/v1/explain", ASKED))["signature"]
        await running.bar(ASKED)
        await running.ask(CHAT, ASKED)

        looks = (await overview(running))[f"signature/{signature}"]["looks"]

    assert looks["features"]["grammar"] == "json_schema"
    assert looks["predicted_us"] > 0


async def test_a_kind_of_request_that_is_dear_is_portrayed_when_it_comes_again_though_nothing_bars_it() -> None:
    async with house() as running:
        signature = (await running.post("/api/v1/explain", ASKED))["signature"]
        oversight = running.gateway._oversight
        assert oversight is not None
        origin = Origin("r1", signature, "acme", "grammar", "grammar-0")
        oversight.step(StepObservation(origin, 0.0, 900.0, {"grammar_fill": 900.0}))
        shown = await overview(running)
        assert shown[f"signature/{signature}"]["looks"] is None

        await running.ask(CHAT, PLAIN[CHAT])
        await running.ask(CHAT, ASKED)

        looks = (await overview(running))[f"signature/{signature}"]["looks"]
        assert looks["features"]["grammar"] == "json_schema"
        # Then nothing is looked at any more.
        proxy = running.gateway._proxy
        assert proxy is not None
        assert proxy._begin == proxy._classifier.begin


async def overview(running: House) -> Any:
    """The offenders that the page shows."""
    _, text = await running.admin("/api/v1/overview")
    return json.loads(text)["offenders"]


async def test_the_end_of_the_gateway_lets_go_of_those_who_watch() -> None:
    async with house() as running, tail(running) as events:
        await anext(events)
        await running.gateway.close()
        with contextlib.suppress(aiohttp.ClientError):
            async for _ in events:
                pass
