"""What Envoy is told of requests: where they go and with what, or what they are answered with."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from tests.integration.epp.envoys import BUFFERED, DUPLEX, MODES, NONE, STREAMED, asking, json_of, pairs, picker
from tests.integration.gateway.harness import CHAT, PLAIN, Engine
from tests.integration.wire.harness import PATIENCE_S, until

BODY = json.dumps(PLAIN[CHAT]).encode()
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
STRUCTURED = json.dumps({**PLAIN[CHAT], "response_format": FORMAT}).encode()
JSON = ("content-type", "application/json")

each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


@each_mode
@pytest.mark.parametrize(("body", "pool"), [(BODY, "interactive"), (STRUCTURED, "grammar")])
async def test_a_request_is_sent_where_the_rules_say(mode: tuple[int, int], body: bytes, pool: str) -> None:
    async with picker() as there:
        sent = await there.talk(*mode).ask(asking(CHAT, JSON, ("content-length", str(len(body)))), body)
        assert sent.endpoint == there.endpoint(f"{pool}-0")
        assert sent.said["envoy.lb"] == {"x-gateway-destination-endpoint": sent.endpoint}
        assert sent.said["steplane"] == {"pool": pool, "route": sent.said["steplane"]["route"], "replica": f"{pool}-0"}
        assert sent.headers[b"x-steplane-pool"] == pool.encode()
        assert json.loads(sent.body).pop("rid")
        assert json.loads(sent.body).items() >= json.loads(body).items()
        if mode[0] == BUFFERED:
            assert sent.headers[b"content-length"] == b"%d" % len(sent.body)


@each_mode
async def test_what_a_client_says_in_our_name_is_taken_out(mode: tuple[int, int]) -> None:
    forged = [("x-gateway-destination-endpoint", "127.0.0.1:1"), ("x-steplane-rid", "a"), ("x-steplane-pool", "b")]
    async with picker() as there:
        sent = await there.talk(*mode).ask(asking(CHAT, *forged, ("x-mine", "c")), BODY)
        assert sent.endpoint == there.endpoint("interactive-0")
        assert b"x-steplane-rid" not in sent.headers
        assert sent.headers[b"x-steplane-pool"] == b"interactive"
        assert sent.headers[b"x-mine"] == b"c"


async def test_a_body_may_come_in_pieces_and_goes_on_in_pieces() -> None:
    body = json.dumps({**PLAIN[CHAT], "user": "x" * 300_000}).encode()
    async with picker() as there:
        sent = await there.talk(DUPLEX, DUPLEX).ask(asking(), body, pieces=7)
        assert json.loads(sent.body)["user"] == "x" * 300_000


async def test_trailers_end_a_body() -> None:
    async with picker() as there:
        talk = there.talk(DUPLEX, DUPLEX)
        await talk.headers(asking())
        await talk.body(BODY, end=False)
        await talk.say(request_trailers=ext_proc.HttpTrailers(trailers=pairs(("a", "b"))))
        assert (await talk.hear()).WhichOneof("response") == "request_headers"
        streamed = (await talk.hear()).request_body.response.body_mutation.streamed_response
        assert not streamed.end_of_stream
        assert json.loads(streamed.body)["model"] == "m"
        assert (await talk.hear()).WhichOneof("response") == "request_trailers"


@each_mode
async def test_a_request_without_a_body_is_decided_by_its_headers(mode: tuple[int, int]) -> None:
    async with picker() as there:
        sent = await there.talk(*mode).ask(asking("/v1/models", method="GET"))
        assert sent.endpoint == there.endpoint("interactive-0")


@each_mode
@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/flush_cache", b"{}", 403, "control_path"),
        (CHAT, b"{", 400, "invalid_json"),
        (CHAT, b'{"model": "m", "messages": [], "user": "%s"}' % (b"x" * 5000), 413, "body_too_large"),
    ],
)
async def test_what_is_refused_is_answered_at_once(
    mode: tuple[int, int], path: str, body: bytes, status: int, code: str
) -> None:
    async with picker(limits={"max_body_bytes": 4096}) as there:
        talk = there.talk(*mode)
        refused = await talk.ask(asking(path, JSON), body)
        assert (refused.status.code, json_of(refused)["code"]) == (status, code)
        assert refused.details == f"steplane_{status}"
        await talk.call.done_writing()
        await talk.says_nothing()


@pytest.mark.parametrize("mode", [NONE, STREAMED])
async def test_an_envoy_that_sends_no_whole_bodies_is_told_how_to(mode: int) -> None:
    async with picker() as there:
        talk = there.talk(mode)
        await talk.headers(asking())
        refused = (await talk.hear()).immediate_response
        assert (refused.status.code, json_of(refused)["code"]) == (500, "ext_proc_mode")
        assert "FULL_DUPLEX_STREAMED" in json_of(refused)["message"]


@pytest.mark.parametrize("headers", [[(":method", "POST")], [(":method", "GET"), (":path", "/a b")]])
async def test_what_is_no_request_gets_an_error(headers: list[tuple[str, str]]) -> None:
    async with picker() as there:
        refused = await there.talk().ask(pairs(*headers, (":authority", "a")))
        assert (refused.status.code, json_of(refused)["code"]) == (400, "bad_http")


async def test_a_header_can_t_smuggle_another() -> None:
    async with picker() as there:
        refused = await there.talk().ask(asking(CHAT, ("a", "b\r\nx-steplane-rid: c")), BODY)
        assert (refused.status.code, json_of(refused)["code"]) == (400, "bad_http")


@pytest.mark.parametrize("offered", [True, False])
async def test_only_what_envoy_offers_is_picked(offered: bool) -> None:
    async with picker() as there:
        offers = ["10.9.9.9:1", *([there.endpoint("interactive-0")] if offered else [])]
        found = await there.talk().ask(asking(), BODY, offers=offers)
        if offered:
            assert found.endpoint == there.endpoint("interactive-0")
        else:
            assert (found.status.code, json_of(found)["code"]) == (503, "endpoint_not_offered")
            await until(lambda: there.house.in_flight == 0)


async def test_a_pool_without_replicas_is_unavailable() -> None:
    async with picker({"interactive": [Engine("interactive-0")]}) as there:
        await there.house.post("/api/v1/replicas/interactive-0/drain", {"author": "sre", "reason": "test"})
        refused = await there.talk().ask(asking(), BODY)
        assert refused.status.code == 503
        assert any(option.header.key == "retry-after" for option in refused.headers.set_headers)


async def test_one_that_waits_goes_when_there_is_room() -> None:
    options = {"grammar": {"admission": {"queue": 5, "max_wait_s": PATIENCE_S}, "step_budget_us": 1}}
    async with picker(options=options) as there:
        first = there.talk()
        await first.ask(asking(), STRUCTURED)
        second = there.talk()
        asked = asyncio.create_task(second.ask(asking(), STRUCTURED))
        await until(lambda: len(there.house.gateway.queues["grammar"]) == 1)
        await first.answered((":status", "200"), end=True)
        assert (await asked).endpoint == there.endpoint("grammar-0")


async def test_rules_change_headers_and_bodies() -> None:
    rule: dict[str, Any] = {
        "name": "capped",
        "pool": "interactive",
        "set_headers": {"x-team": "a"},
        "strip_headers": ["x-secret"],
        "cap": {"max_tokens": 7},
    }
    async with picker(rules=[rule]) as there:
        talk = there.talk()
        sent = await talk.ask(asking(CHAT, ("x-secret", "s")), json.dumps({**PLAIN[CHAT], "max_tokens": 99}).encode())
        assert sent.headers[b"x-team"] == b"a"
        assert b"x-secret" not in sent.headers
        assert json.loads(sent.body)["max_tokens"] == 7
