"""What Envoy is told of responses, and what is learned from them."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from tests.integration.epp.envoys import BUFFERED, DUPLEX, MODES, NONE, Picker, Talk, asking, json_of, pairs, picker
from tests.integration.gateway.harness import CHAT, PLAIN, Engine, three_pools
from tests.integration.wire.harness import PATIENCE_S, until

BODY = json.dumps(PLAIN[CHAT]).encode()
STREAM = json.dumps({**PLAIN[CHAT], "stream": True}).encode()
HELD_BACK = {**PLAIN[CHAT], "stream": True, "logprobs": True, "top_logprobs": 20}
JSON = ("content-type", "application/json")
EVENTS = ("content-type", "text/event-stream")
EVENT = b'data: {"n":1}\n\n'
DONE = b"data: [DONE]\n\n"

each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


async def asked(there: Picker, mode: tuple[int, int], body: bytes = BODY) -> Talk:
    """A stream whose request was sent on."""
    talk = there.talk(*mode)
    await talk.ask(asking(), body)
    assert there.house.in_flight == 1
    return talk


@each_mode
async def test_a_response_passes_with_our_headers(mode: tuple[int, int]) -> None:
    async with picker() as there:
        talk = await asked(there, mode)
        headers = dict(await talk.answered((":status", "200"), JSON, ("content-length", "11"), ("server", "uvicorn")))
        assert headers[b"x-steplane-replica"] == b"interactive-0"
        assert headers[b"server"] == b"uvicorn"
        assert await talk.piece(b'{"ok":true}', end=True) == b'{"ok":true}'
        await until(lambda: there.house.in_flight == 0)
        await there.house.reaches("steplane_requests_total", 1, pool="interactive", status="2xx")


@each_mode
async def test_a_stream_passes_event_by_event(mode: tuple[int, int]) -> None:
    async with picker() as there:
        talk = await asked(there, mode, STREAM)
        await talk.answered((":status", "200"), EVENTS)
        for event in (EVENT, b'data: {"n":2}\n\n'):
            assert await talk.piece(event) == event
        assert there.house.in_flight == 1
        assert await talk.piece(DONE, end=True) == DONE
        await until(lambda: there.house.in_flight == 0)


@each_mode
@pytest.mark.parametrize(
    ("method", "status", "headers"),
    [("HEAD", 200, [("content-length", "5")]), ("GET", 204, []), ("GET", 304, []), ("GET", 200, [])],
)
async def test_a_response_may_have_no_body(
    mode: tuple[int, int], method: str, status: int, headers: list[tuple[str, str]]
) -> None:
    async with picker() as there:
        talk = there.talk(*mode)
        await talk.ask(asking("/v1/models", method=method))
        got = dict(await talk.answered((":status", str(status)), *headers, end=True))
        assert got[b"x-steplane-pool"] == b"interactive"
        assert got.get(b"content-length") == (b"5" if headers else None)
        await until(lambda: there.house.in_flight == 0)


@each_mode
async def test_an_error_of_an_engine_passes_and_counts(mode: tuple[int, int]) -> None:
    async with picker() as there:
        talk = await asked(there, mode)
        headers = dict(await talk.answered((":status", "500"), ("content-length", "4")))
        assert headers[b"x-steplane-replica"] == b"interactive-0"
        assert await talk.piece(b"oops", end=True) == b"oops"
        await there.house.reaches("steplane_requests_total", 1, pool="interactive", status="5xx")


async def test_trailers_end_a_response() -> None:
    async with picker() as there:
        talk = await asked(there, (DUPLEX, DUPLEX))
        await talk.answered((":status", "200"), JSON)
        assert await talk.piece(b"{}") == b"{}"
        await talk.say(response_trailers=ext_proc.HttpTrailers(trailers=pairs(("a", "b"))))
        assert (await talk.hear()).WhichOneof("response") == "response_trailers"
        await until(lambda: there.house.in_flight == 0)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_an_envoy_that_tells_of_no_bodies_ends_a_response_with_its_stream(how: str) -> None:
    async with picker() as there:
        talk = await asked(there, (BUFFERED, NONE))
        await talk.answered((":status", "200"), JSON)
        assert there.house.in_flight == 1
        if how == "cancelled":
            talk.call.cancel()
        else:
            await talk.call.done_writing()
            await talk.says_nothing()
        await there.house.reaches("steplane_requests_total", 1, pool="interactive", status="2xx")
        assert not there.house.engines["interactive-0"].aborted


@pytest.mark.parametrize("mode", [MODES["buffered"], MODES["duplex"]], ids=["buffered", "duplex"])
@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_who_leaves_is_dropped_at_the_engine(mode: tuple[int, int], answered: bool, how: str) -> None:
    async with picker() as there:
        talk = await asked(there, mode, STREAM)
        if answered:
            await talk.answered((":status", "200"), EVENTS)
            await talk.piece(EVENT)
        if how == "cancelled":
            talk.call.cancel()
        else:
            await talk.call.done_writing()
        await until(lambda: bool(there.house.engines["interactive-0"].aborted))
        await until(lambda: there.house.in_flight == 0)


@each_mode
async def test_who_leaves_while_the_request_waits_leaves_nothing(mode: tuple[int, int]) -> None:
    async with picker() as there:
        talk = there.talk(*mode)
        await talk.headers(asking())
        if mode[0] == BUFFERED:
            await talk.hear()
        else:
            await talk.body(BODY, end=False)
        talk.call.cancel()
        await talk.call.code()
        assert there.house.in_flight == 0


async def test_what_has_tripped_is_ended_at_once_where_envoy_can() -> None:
    async with picker(three_pools()) as there:
        talk = await asked(there, (DUPLEX, DUPLEX), json.dumps(HELD_BACK).encode())
        await talk.answered((":status", "200"), EVENTS)
        await talk.piece(EVENT)
        await there.house.bar(HELD_BACK)
        end = await talk.passed(end=True)
        assert b"step_budget_exceeded" in end
        assert end.endswith(DONE)
        await talk.say(response_body=ext_proc.HttpBody(body=DONE, end_of_stream=True))  # it was on its way
        await talk.call.done_writing()
        await talk.says_nothing()


async def test_what_has_tripped_is_ended_with_the_next_word_of_its_engine_elsewhere() -> None:
    async with picker(three_pools()) as there:
        talk = await asked(there, MODES["buffered"], json.dumps(HELD_BACK).encode())
        await talk.answered((":status", "200"), EVENTS)
        await talk.piece(EVENT)
        await there.house.bar(HELD_BACK)
        assert b"step_budget_exceeded" in await talk.piece(EVENT)
        assert await talk.piece(EVENT) == b""
        assert await talk.piece(DONE, end=True) == b""


@each_mode
async def test_what_trips_before_its_answer_is_refused(mode: tuple[int, int]) -> None:
    async with picker(three_pools()) as there:
        talk = await asked(there, mode, json.dumps(HELD_BACK).encode())
        await there.house.bar(HELD_BACK)
        refused = (await talk.hear()).immediate_response
        assert (refused.status.code, json_of(refused)["code"]) == (429, "quarantined")
        await until(lambda: there.house.in_flight == 0)


async def test_a_response_that_breaks_off_is_broken_off() -> None:
    """An engine is silent in the midst of a JSON document: nobody may take what has come for all of it."""
    async with picker(timeouts={"stream_idle_s": 1}) as there:
        talk = await asked(there, (DUPLEX, DUPLEX))
        await talk.answered((":status", "200"), JSON)
        await talk.piece(b'{"ok"')
        with pytest.raises(grpc.aio.AioRpcError, match="broken off"):
            await talk.call.read()


async def test_an_engine_that_says_nothing_is_given_up() -> None:
    async with picker(timeouts={"first_byte_s": 1}) as there:
        talk = await asked(there, MODES["buffered"])
        gone = (await talk.hear()).immediate_response
        assert (gone.status.code, json_of(gone)["code"]) == (504, "upstream_first_byte_timeout")
        await until(lambda: bool(there.house.engines["interactive-0"].aborted))


async def test_an_answer_of_another_filter_passes() -> None:
    """Envoy answered itself, before it had told of the whole request."""
    async with picker() as there:
        talk = there.talk()
        await talk.headers(asking())
        await talk.hear()
        assert await talk.answered((":status", "401")) == [(b":status", b"401")]


async def test_a_picker_that_drains_finishes_what_runs_and_takes_nothing_new() -> None:
    async with picker() as there:
        talk = await asked(there, MODES["buffered"])
        draining = asyncio.create_task(there.house.gateway.drain())
        await until(lambda: there.house.gateway.draining)

        async with asyncio.timeout(PATIENCE_S):
            while True:
                if not await _is_taken(there):
                    break
                await asyncio.sleep(0.01)
        await talk.answered((":status", "200"), JSON)
        assert await talk.piece(b"{}", end=True) == b"{}"
        await talk.call.done_writing()
        await draining


async def _is_taken(there: Picker) -> bool:
    """Whether another stream is."""
    late = there.talk()
    try:
        await late.headers(asking())
        await late.hear()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return False
    late.call.cancel()
    return True


async def test_envoy_is_told_the_address_of_an_engine_that_has_a_name() -> None:
    engine = Engine("interactive-0")
    async with picker({"interactive": [engine]}) as there:
        port = engine.url.rpartition(":")[2]
        await there.house.post("/api/v1/replicas/interactive-0/drain", {"author": "sre", "reason": "test"})
        added = {"url": f"http://localhost:{port}", "name": "named"}
        await there.house.post("/api/v1/pools/interactive/replicas", added)
        await until(lambda: any(each.name == "named" and each.available for each in there.house.replicas))
        sent = await there.talk().ask(asking(), BODY)
        assert sent.endpoint in (f"127.0.0.1:{port}", f"[::1]:{port}")
        assert sent.said["steplane"]["replica"] == "named"
