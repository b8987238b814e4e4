"""What reaches the engine: the client's bytes, but for the request id that SGLang is to know the request by."""

import json

import pytest

from .harness import (
    CHAT,
    COMPLETIONS,
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
)

ODD = b' \r\n\t{ "messages" : [ ] ,"user":"\\u00e9\xc3\xa9", "n": 1.0,"unknown":{"b":1,"a":[ 1e2 ]}, "seed":-0 }\n '
"""Spaces, escapes and numbers that no serializer would spell like this again."""
FIELDS = {CHAT: b'"rid":"', COMPLETIONS: b'"rid":"', GENERATE: b'"rid":"', RESPONSES: b'"request_id":"'}


def without_id(body: bytes, field: bytes) -> tuple[bytes, bytes]:
    """A body without its last field, which has to be the id; and the id."""
    before, found, rest = body.rpartition(field)
    assert found, body
    value, _, rest = rest.partition(b'"')
    return before.removesuffix(b",") + rest, value


@pytest.mark.parametrize("path", FIELDS)
@pytest.mark.parametrize("body", [ODD, b"{}", b"\n {\t}\r\n", b'{"model":"m"}'])
async def test_sglang_gets_the_client_s_bytes_with_an_id_behind_them(path: str, body: bytes) -> None:
    async with house() as running:
        answer = await running.ask(path, body)
        assert answer.status == 200
        (seen,) = running.asked
        assert seen.start == f"POST {path} HTTP/1.1".encode()
        rest, engine_id = without_id(seen.body, FIELDS[path])
        assert rest == body
        assert engine_id == answer.header(b"x-request-id")  # the client gave none, so one id serves both
        assert list(json.loads(seen.body))[:-1] == list(json.loads(body))


async def test_sglang_learns_the_id_of_a_message_from_a_header_that_no_client_can_set() -> None:
    async with house() as running:
        answer = await running.ask(MESSAGES, PLAIN[MESSAGES], "x-steplane-rid: mine")
        assert running.asked[0].values(b"x-steplane-rid") == [answer.header(b"x-request-id")]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_of_two_requests_that_choose_one_id_at_a_time_the_second_gets_another(engine: str) -> None:
    held = Held(SSE_HEAD)
    async with house({"interactive": [Engine("a", held)]}, options={"interactive": {"engine": engine}}) as running:
        clients = [await running.client() for _ in range(2)]
        for client in clients:
            body = {**PLAIN[CHAT], "stream": True, "rid": "mine"}
            await client.send(request(CHAT, body, "x-request-id: mine"))
            await client.head()
        first, second = running.asked
        if engine == "sglang":
            assert json.loads(first.body)["rid"] == "mine"
            assert json.loads(second.body)["rid"] != "mine"
        else:
            assert first.header(b"x-request-id") == b"mine"
            assert second.header(b"x-request-id") != b"mine"
        held.finish.set()


@pytest.mark.parametrize("engine", ["vllm", "other"])
@pytest.mark.parametrize("path", PLAIN)
async def test_other_engines_get_the_client_s_bytes_as_they_are(engine: str, path: str) -> None:
    async with house(options={"interactive": {"engine": engine}}) as running:
        assert (await running.ask(path, ODD)).status == 200
        assert running.asked[0].body == ODD


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (MESSAGES, ODD),
        (CHAT, b'{"rid":"mine","messages":[]}'),
        (CHAT, b'{"messages":[], "r\\u0069d":"mine"}'),
        (GENERATE, b'{"text":["a","b"],"rid":["x","y"]}'),
    ],
)
async def test_a_body_with_an_id_or_without_a_place_for_one_stays_as_it_is(path: str, body: bytes) -> None:
    async with house() as running:
        await running.ask(path, body)
        assert running.asked[0].body == body


async def test_the_engine_s_id_is_never_the_client_s_header() -> None:
    """Two clients may send the same header; the engine refuses an id that is running already."""
    async with house() as running:
        for _ in range(2):
            await running.ask(CHAT, PLAIN[CHAT], "x-request-id: same")
        ids = [json.loads(seen.body)["rid"] for seen in running.asked]
        assert "same" not in ids
        assert len(set(ids)) == 2


@pytest.mark.parametrize("pieces", [[ODD], [ODD[:1], ODD[1:50], ODD[50:]], [bytes([byte]) for byte in ODD]])
async def test_a_chunked_body_arrives_whole(pieces: list[bytes]) -> None:
    async with house() as running:
        client = await running.client()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        answer = await client.ask(head + b"".join(map(chunk, pieces)) + b"0\r\n\r\n")
        assert answer.status == 200
        (seen,) = running.asked
        assert without_id(seen.body, b'"rid":"')[0] == ODD
        assert seen.header(b"content-length") == b"%d" % len(seen.body)


@pytest.mark.parametrize(
    "path",
    [
        "/abort_request",
        "//abort_request/",
        "/%61bort_request?x=1",
        "/flush_cache",
        "/v1/load_lora_adapter",
        "/hicache/storage-backend/clear",
        "/dumper/x",
        "/sleep?level=1",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_nobody_steers_an_engine_through_the_gateway(path: str, method: str) -> None:
    async with house() as running:
        answer = await running.ask(path, b'{"abort_all":true}', method=method)
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, "control_path")
        assert running.asked == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_an_unknown_path_is_passed_through_whatever_the_method(method: str) -> None:
    async with house() as running:
        answer = await running.ask("/v1/no/such%2Fpath?x=%20&y", b"\x00\xff{", "content-type: x/y", method=method)
        assert answer.status == 200
        assert answer.header(b"x-steplane-pool") == b"interactive"
        (seen,) = running.asked
        assert seen.start == f"{method} /v1/no/such%2Fpath?x=%20&y HTTP/1.1".encode()
        assert (seen.body, seen.header(b"content-type")) == (b"\x00\xff{", b"x/y")


async def test_a_method_that_generates_nothing_is_the_engine_s_to_refuse() -> None:
    async with house() as running:
        for method in ("GET", "DELETE", "PATCH"):
            assert (await running.ask(CHAT, b"no json", method=method)).status == 200
        assert [seen.body for seen in running.asked] == [b"no json"] * 3


async def test_the_client_s_headers_and_query_reach_the_engine() -> None:
    async with house() as running:
        lines = ("Authorization: Bearer x", "X-Custom: a, b", "content-type: application/json", "accept: */*")
        await running.ask(CHAT + "?debug=1", PLAIN[CHAT], *lines)
        (seen,) = running.asked
        assert seen.start == f"POST {CHAT}?debug=1 HTTP/1.1".encode()
        assert seen.header(b"authorization") == b"Bearer x"
        assert seen.header(b"x-custom") == b"a, b"


async def test_an_unknown_path_s_body_is_sent_on_while_it_arrives() -> None:
    async with house() as running:
        client = await running.client()
        await client.send(request_head(b"/v1/files", 10) + b"01234")
        await client.send(b"56789")
        assert (await client.response()).status == 200
        assert running.asked[0].body == b"0123456789"


def request_head(path: bytes, length: int) -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (path, length)
