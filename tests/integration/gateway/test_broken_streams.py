"""An engine that dies in mid-stream: the client gets an error event in its own dialect and a proper end."""

import json

import pytest

from .harness import (
    CHAT,
    COMPLETIONS,
    EVENT,
    GENERATE,
    MESSAGES,
    PLAIN,
    RESPONSES,
    SSE_HEAD,
    Engine,
    Held,
    chunk,
    house,
    request,
    until,
)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
async def test_openai_s_streams_end_with_an_error_and_done(path: str) -> None:
    broken = Held(SSE_HEAD + EVENT)
    async with house({"interactive": [Engine("a", broken)]}) as running:
        broken.finish.set()
        answer = await running.ask(path, {**PLAIN[path], "stream": True})
        assert answer.status == 200
        first, error, done, end = answer.body.split(b"\n\n")
        assert (first, done, end) == (b'data: {"n":1}', b"data: [DONE]", b"")
        said = json.loads(error.removeprefix(b"data: "))["error"]
        assert said["code"] == "upstream_died"
        assert said["type"] == "server_error"
        assert "a closed the connection" in said["message"]


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
async def test_streams_of_named_events_end_with_an_event_named_error(path: str) -> None:
    broken = Held(SSE_HEAD + chunk(b"event: ping\ndata: {}\n\n"))
    async with house({"interactive": [Engine("a", broken)]}) as running:
        broken.finish.set()
        answer = await running.ask(path, {**PLAIN[path], "stream": True})
        ping, error, end = answer.body.split(b"\n\n")
        assert (ping, end) == (b"event: ping\ndata: {}", b"")
        name, data = error.split(b"\n")
        assert name == b"event: error"
        event = json.loads(data.removeprefix(b"data: "))
        assert event["type"] == "error"
        if path == RESPONSES:
            assert event["code"] == "upstream_died"
            assert "closed the connection" in event["message"]
        else:
            assert event["error"]["type"] == "api_error"


async def test_the_breakage_is_counted_and_the_engine_is_told() -> None:
    """It may only be the connection that died."""
    broken = Held(SSE_HEAD + EVENT)
    async with house({"interactive": [Engine("a", broken)]}) as running:
        broken.finish.set()
        await running.ask(CHAT, {**PLAIN[CHAT], "stream": True})
        await until(lambda: len(running.engines["a"].aborted) == 1)
        assert await running.metric("steplane_upstream_errors_total", replica="a", kind="died") == 1
        assert await running.metric("steplane_requests_total", status="2xx") == 1
        assert await running.metric("steplane_client_disconnects_total") == 0
        assert running.in_flight == 0


async def test_a_stream_that_says_nothing_for_too_long_is_ended_and_the_engine_is_told() -> None:
    silent = Held(SSE_HEAD + EVENT)
    async with house({"interactive": [Engine("a", silent)]}, timeouts={"stream_idle_s": 0.05}) as running:
        answer = await running.ask(CHAT, {**PLAIN[CHAT], "stream": True})
        assert b"upstream_idle_timeout" in answer.body
        assert answer.body.endswith(b"data: [DONE]\n\n")
        await silent.left.wait()
        await until(lambda: len(running.engines["a"].aborted) == 1)


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        SSE_HEAD + b"20\r\ndata: half an ev",
        SSE_HEAD + chunk(b"data: half an event"),
    ],
)
async def test_where_no_event_can_be_added_the_client_sees_that_the_body_is_cut(start: bytes) -> None:
    broken = Held(start)
    async with house({"interactive": [Engine("a", broken)]}) as running:
        client = await running.client()
        await client.send(request(CHAT, PLAIN[CHAT]))
        assert (await client.head()).status == 200
        broken.finish.set()
        try:
            rest = await client.rest()
        except ConnectionError:
            rest = b""
        assert b"error" not in rest
        assert not rest.endswith(b"0\r\n\r\n")
        assert len(rest) < 100
