"""The client of the load test against a server that misbehaves in every way it must notice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from loadtest import command
from loadtest.client.openloop import OpenLoop, Target, TargetError
from loadtest.client.outcome import Outcome
from loadtest.results.run import read
from loadtest.traffic.plan import plan
from loadtest.traffic.scenario import Scenario

TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
DONE = b"data: [DONE]\n\n"
HUGE = 2000


class Engine:
    """Answers by what the model's name says. `gone`: set when a client of `forever` has left."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.asked: list[dict[str, object]] = []
        self._turn = asyncio.Lock()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        self.asked.append(body)
        match body["model"]:
            case "broken":
                return web.json_response({"error": {"message": "no"}}, status=500)
            case "plain":
                return web.json_response({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]})
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-steplane-pool": "p"})
        await response.prepare(request)
        await response.write(ROLE)
        try:
            await self._stream(body["model"], response)
        except (ConnectionError, asyncio.CancelledError):
            self.gone.set()
            raise
        return response

    async def _stream(self, model: str, response: web.StreamResponse) -> None:
        match model:
            case "one-by-one":
                async with self._turn:
                    await asyncio.sleep(0.05)
                await response.write(TOKEN + TOKEN)
            case "error":
                await response.write(TOKEN)
                await response.write(b'data: {"error": {"message": "step budget"}}\n\n')
            case "cut":
                await response.write(TOKEN)
                assert response._req.transport is not None
                response._req.transport.abort()
                return
            case "forever":
                while True:
                    await response.write(TOKEN)
                    await asyncio.sleep(0.01)
            case "large":
                for _ in range(40):
                    await response.write(TOKEN)
            case "carriage-returns":
                for part in (TOKEN * 3).replace(b"\n", b"\r\n").partition(b"\r"):
                    await response.write(part)
            case "huge":
                await response.write(TOKEN * HUGE)
        await response.write(DONE)


@pytest.fixture
async def engine() -> AsyncIterator[tuple[Engine, str]]:
    made = Engine()
    app = web.Application(handler_args={"handler_cancellation": True})
    app.router.add_post("/v1/chat/completions", made.chat)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield made, f"http://127.0.0.1:{port}"
    await runner.cleanup()


def scenario(model: str, **traffic: object) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "s",
            "model": model,
            "rate_per_s": 40,
            "warm_s": 0,
            "duration_s": 0.5,
            "settle_s": 20,
            "classes": {"chat": {"kind": "chat", "arrivals": "steady", **traffic}},
        }
    )


async def outcomes(url: str, wanted: Scenario) -> list[Outcome]:
    loop = OpenLoop(wanted, Target("t", url))
    await loop.run(plan(wanted, "calm", "0/t"))
    assert loop.in_flight == 0
    return loop.outcomes


async def test_requests_are_sent_when_they_are_due_whatever_became_of_the_others(engine: tuple[Engine, str]) -> None:
    found = await outcomes(engine[1], scenario("one-by-one"))
    assert len(found) == 20
    assert [each.error for each in found] == [""] * 20
    # Served one after the other in 50 ms each while 40 a second are due: what waits for a turn is in the times.
    times = [each.arrivals[0] - each.due for each in found]
    assert max(times) > 19 * 0.05 - 0.5
    assert {(each.tokens, len(each.arrivals), each.pool) for each in found} == {(2, 1, "p")}
    assert len({orjson.dumps(each["rid"]) for each in engine[0].asked}) == 20


@pytest.mark.parametrize(
    ("model", "error", "tokens"),
    [
        ("broken", "status 500: no", 0),
        ("error", "error event: data: ", 1),
        ("cut", "connection closed", 1),
        ("plain", "", 0),
        ("large", "", 40),
        ("carriage-returns", "", 3),
    ],
)
async def test_failures_are_told_apart(engine: tuple[Engine, str], model: str, error: str, tokens: int) -> None:
    found = await outcomes(engine[1], scenario(model))
    assert {each.tokens for each in found} == {tokens}
    assert all(each.error.startswith(error) and bool(each.error) == bool(error) for each in found)


async def test_who_leaves_is_no_failure_and_the_server_hears_of_it(engine: tuple[Engine, str]) -> None:
    found = await outcomes(engine[1], scenario("forever", leave_after_s=0.2))
    assert all(each.left and not each.error for each in found)
    await asyncio.wait_for(engine[0].gone.wait(), 20)


async def test_what_has_no_end_when_the_slice_has_failed(engine: tuple[Engine, str]) -> None:
    wanted = scenario("forever").model_copy(update={"settle_s": 0.3})
    found = await outcomes(engine[1], wanted)
    assert {each.error for each in found} == {"no end within 0.3 s"}


async def test_a_slow_reader_reads_slowly(engine: tuple[Engine, str]) -> None:
    bytes_in_all = HUGE * len(TOKEN)
    wanted = scenario("huge", read_bytes_per_s=2 * bytes_in_all).model_copy(update={"rate_per_s": 4.0})
    found = await outcomes(engine[1], wanted)
    assert [(each.tokens, each.error) for each in found] == [(HUGE, "")] * 2
    assert all(each.ended is not None and each.ended - each.sent > 0.25 for each in found)


async def test_nobody_listens_there() -> None:
    found = await outcomes("http://127.0.0.1:1", scenario("plain"))
    assert all(each.error.startswith("cannot connect") for each in found)


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://there", "http://"])
def test_a_target_must_be_a_url(url: str) -> None:
    with pytest.raises(TargetError, match="no http://"):
        OpenLoop(scenario("plain"), Target("t", url))


async def test_a_run_goes_on_is_reported_and_compared(engine: tuple[Engine, str], tmp_path: Path) -> None:
    path, results = tmp_path / "s.yaml", tmp_path / "r.json"
    path.write_text(scenario("large").model_copy(update={"phases": ["calm"]}).model_dump_json())
    targets = [f"{engine[1]}=one", f"{engine[1]}=two"]
    # In a thread of its own, for it has an event loop of its own.
    said = await asyncio.to_thread(command.run, path, targets, [], [], results)
    assert "| chat | one | 20 | 0 |" in said
    assert [each.target for each in read(results).slices] == ["one", "two"]
    asked = len(engine[0].asked)
    await asyncio.to_thread(command.run, path, targets, [], [], results)
    assert len(engine[0].asked) == asked, "what was done is not done again"
    await asyncio.to_thread(command.report, results, tmp_path / "r.html", tmp_path / "r.md")
    assert "<svg" in (tmp_path / "r.html").read_text()
    assert (tmp_path / "r.md").read_text() == said
    assert "(x 1.00)" in command.comparison(results, results)


@pytest.mark.parametrize(
    ("targets", "feeds", "said"),
    [
        (["http://127.0.0.1:1"], ["x=http://127.0.0.1:2"], "--feed x=http://127.0.0.1:2: expected NAME=URL"),
        (["http://127.0.0.1:1", "http://127.0.0.1:1"], [], "two targets have one name"),
        (["127.0.0.1:1=a"], [], "no http:// or https:// URL"),
    ],
)
def test_what_cannot_be_run_is_told(tmp_path: Path, targets: list[str], feeds: list[str], said: str) -> None:
    with pytest.raises(command.LoadtestError, match=said):
        command.run(Path("everyday"), targets, feeds, [], tmp_path / "r.json")
