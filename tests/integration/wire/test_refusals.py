"""Errors of the wire's own: in the shape that clients of OpenAI's API read, and under an id that the log has, too."""

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest
import structlog

from gateway.wire.limits import Limits, Timeouts

from .harness import GET, OK, PATIENCE_S, Client, answering, wire

TIGHT = Limits(max_header_bytes=1000, max_body_bytes=100)
HOST = b"POST / HTTP/1.1\r\nhost: a\r\n"
CASES = {
    "bad head": (b"NONSENSE\r\n\r\n", 400, "bad_http"),
    "two hosts": (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400, "bad_http"),
    "bad chunk": (HOST + b"transfer-encoding: chunked\r\n\r\nx\r\n", 400, "bad_http"),
    "slow head": (b"GET / HT", 408, "request_timeout"),
    "slow body": (HOST + b"content-length: 5\r\n\r\nabc", 408, "request_timeout"),
    "large body": (HOST + b"content-length: 101\r\n\r\n", 413, "body_too_large"),
    "large head": (b"GET / HTTP/1.1\r\nx: " + bytes(b"y" * 2000), 431, "header_too_large"),
    "coding": (HOST + b"transfer-encoding: gzip\r\n\r\n", 400, "bad_http"),
    "coding before chunked": (HOST + b"transfer-encoding: gzip, chunked\r\n\r\n", 501, "not_implemented"),
    "long target": (b"GET /" + bytes(b"x" * 2000), 414, "uri_too_long"),
    "connect": (b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n", 501, "not_implemented"),
    "unknown method": (b"BREW / HTTP/1.1\r\nhost: a\r\n\r\n", 501, "not_implemented"),
}


async def refusal(client: Client, request: bytes) -> tuple[int, str, str]:
    """Status, code and id of an error; everything else about it is as it must be."""
    await client.send(request)
    message = await client.response()
    assert message.header(b"content-type") == b"application/json"
    assert message.header(b"connection") == b"close"
    error = json.loads(message.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("server_error" if message.status >= 500 else "invalid_request_error")
    return message.status, error["code"], (message.header(b"x-request-id") or b"").decode()


@pytest.mark.parametrize(("request_bytes", "status", "code"), CASES.values(), ids=CASES)
async def test_a_refusal_has_a_shape_and_an_id_that_is_in_the_log(request_bytes: bytes, status: int, code: str) -> None:
    timeouts = Timeouts(header_s=0.1, body_s=0.1, sweep_s=0.02)
    async with wire(answering(OK), limits=TIGHT, timeouts=timeouts) as gateway:
        with structlog.testing.capture_logs() as logs:
            assert (await refusal(await gateway.client(), request_bytes))[:2] == (status, code)
            _, _, request_id = await refusal(await gateway.client(), request_bytes)
        assert re.fullmatch(r"[0-9a-f]{24}", request_id)
        ids = [entry["request_id"] for entry in logs if entry["event"] == "request_refused"]
        assert len(set(ids)) == 2
        assert ids[1] == request_id
        assert gateway.server.counts.refused == {status: 2}


@pytest.mark.parametrize(
    ("given", "kept"),
    [(b"abc-123", True), (b"x" * 128, True), (b"x" * 129, False), (b"a b", False), (b"", False)],
)
@pytest.mark.parametrize("case", ["large body", "slow body", "bad chunk"])
async def test_the_client_s_own_id_is_kept_if_it_is_one(given: bytes, kept: bool, case: str) -> None:
    timeouts = Timeouts(body_s=0.1, sweep_s=0.02)
    request = CASES[case][0].replace(b"host: a\r\n", b"host: a\r\nx-request-id: %b\r\n" % given)
    async with wire(answering(OK), limits=TIGHT, timeouts=timeouts) as gateway:
        _, _, request_id = await refusal(await gateway.client(), request)
        assert (request_id == given.decode()) is kept
        assert request_id


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"HEAD / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"HEAD / HTTP/1.1\r\nx: " + b"y" * 2000, 431),
        (b"HEAD /" + b"y" * 2000, 414),
        (b"HEAD / HTTP/1.1\r\nhost: a\r\ncontent-length: 101\r\n\r\n", 413),
        (b"HEAD / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", 400),
    ],
    ids=["head", "large head", "long target", "large body", "bad chunk"],
)
async def test_a_refused_head_gets_no_body(request_bytes: bytes, status: int) -> None:
    async with wire(answering(OK), limits=TIGHT) as gateway:
        client = await gateway.client()
        await client.send(request_bytes)
        message = await client.response(b"HEAD")
        assert message.status == status
        assert int(message.header(b"content-length") or b"0") > 0
        await client.closed()


async def test_our_answers_are_dated() -> None:
    async with wire(answering(OK)) as gateway:
        message = await (await gateway.client()).ask(b"GET / HTTP/1.1\r\n\r\n")
        written = parsedate_to_datetime((message.header(b"date") or b"").decode())
        assert abs((written - datetime.now(UTC)).total_seconds()) < PATIENCE_S


async def test_one_connection_too_many_has_an_id_as_well() -> None:
    async with wire(answering(OK), limits=Limits(max_connections=1)) as gateway:
        await (await gateway.client()).ask(GET)
        status, code, request_id = await refusal(await gateway.client(), b"")
        assert (status, code) == (503, "too_many_connections")
        assert request_id
        assert gateway.server.counts.turned_away == 1
