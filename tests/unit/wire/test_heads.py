"""Heads that are remembered: the digits of a length are all that may differ, and memory is bounded."""

import tracemalloc

import pytest

from gateway.wire.requesthead import RefusedError, RequestHeads
from gateway.wire.responsehead import BadResponseError, ResponseHeads


def request(line: bytes, count: int = 0) -> bytes:
    return b"POST /%d HTTP/1.1\r\nhost: a\r\n%b\r\nx: 1\r\n\r\n" % (count, line)


@pytest.mark.parametrize("known", [b"y: 1", b"content-length: 5"])
def test_a_client_cannot_send_headers_that_are_between_us_and_the_replica(known: bytes) -> None:
    heads = RequestHeads()
    heads.read(request(known))
    for count in range(2):
        head, _ = heads.read(request(b"%b\r\nX-Steplane-Rid: %d" % (known, count)))
        assert b"steplane" not in head.lines.lower()
        assert b"x: 1\r\n" in head.lines


def test_a_head_that_differs_in_the_length_alone_is_the_same_head() -> None:
    heads = RequestHeads()
    first, five = heads.read(request(b"content-length: 5"))
    second, thousand = heads.read(request(b"content-length: 1000"))
    assert first is second
    assert (five, thousand) == (5, 1000)


@pytest.mark.parametrize(
    "line",
    [
        b"Content-Length: 5",
        b"content-length:5",
        b"content-length: 5\r\ny: 1",
        b"x-content-length: 5\r\ncontent-length: 5",
        b"y: content-length: 5",
    ],
)
def test_a_head_that_differs_in_anything_else_is_another(line: bytes) -> None:
    heads = RequestHeads()
    known, _ = heads.read(request(b"content-length: 5"))
    other, _ = heads.read(request(line))
    assert other is not known


@pytest.mark.parametrize(
    "line",
    [
        b"content-length: ",
        b"content-length: x",
        b"content-length: 5\r\ncontent-length: 5",
        b"content-length: 5\r\ntransfer-encoding: chunked",
        b"content-length: 5, 5",
    ],
)
@pytest.mark.parametrize("known", [b"content-length: 5", b"content-length: 55555"])
def test_what_is_refused_is_refused_beside_a_known_head_too(line: bytes, known: bytes) -> None:
    heads = RequestHeads()
    heads.read(request(known))
    for _ in range(2):
        with pytest.raises(RefusedError):
            heads.read(request(line))


@pytest.mark.parametrize(
    ("line", "length"),
    [
        (b"CONTENT-LENGTH: 5", 5),
        (b"content-length:  5\t", 5),
        (b"content-length: " + b"0" * 5000 + b"5", 5),
        (b"content-length: 0", 0),
        (b"y: 1", -1),
    ],
    ids=range(5),
)
def test_the_length_is_read_in_every_spelling(line: bytes, length: int) -> None:
    heads = RequestHeads()
    for _ in range(2):
        assert heads.read(request(line))[1] == length


def test_the_headers_of_a_known_head_have_no_length_that_was_another_request_s() -> None:
    heads = RequestHeads()
    heads.read(request(b"content-length: 5"))
    head, _ = heads.read(request(b"content-length: 7"))
    assert head.header(b"content-length") is None
    assert head.header(b"x") == b"1"


@pytest.mark.parametrize("other", [b"y: 1\r\n", b"x-request-id: 7\r\n"])
def test_an_empty_length_beside_a_line_that_is_new_is_refused(other: bytes) -> None:
    heads = RequestHeads()
    heads.read(request(b"content-length: 5"))
    with pytest.raises(RefusedError):
        heads.read(request(other + b"content-length: "))


@pytest.mark.parametrize("lines", [b"x: 0\r\nx: 1", b"x: 1\r\nX: 0", b"x: 2\r\nx: 1\r\nx: 0"])
def test_headers_of_one_name_keep_their_order_beside_a_known_head(lines: bytes) -> None:
    heads = RequestHeads()
    heads.read(b"GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n\r\n")
    for _ in range(2):
        head, _ = heads.read(b"GET / HTTP/1.1\r\nhost: a\r\n%b\r\n\r\n" % lines)
        assert head.lines == b"host: a\r\n%b\r\n" % lines


def test_a_server_that_sends_an_empty_length_is_not_believed_after_a_good_one() -> None:
    heads = ResponseHeads()
    assert heads.read(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")[1] == 5
    with pytest.raises(BadResponseError):
        heads.read(b"HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n")


def test_memory_is_bounded_however_many_heads_come() -> None:
    heads, answers = RequestHeads(), ResponseHeads()
    tracemalloc.start()
    try:
        for count in range(6000):
            heads.read(request(b"x-request-id: %d" % count, count))
            answers.read(b"HTTP/1.1 200 OK\r\nx: %d\r\ncontent-length: 5\r\n\r\n" % count)
        assert tracemalloc.get_traced_memory()[0] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


def fields(count: int) -> bytes:
    return b"GET / HTTP/1.1\r\nhost: a\r\n" + b"a:\r\n" * (count - 1) + b"\r\n"


def test_a_head_may_have_256_fields() -> None:
    assert len(RequestHeads().read(fields(256))[0].headers) == 256


@pytest.mark.parametrize("count", [257, 15_000])
def test_a_head_with_more_is_refused(count: int) -> None:
    with pytest.raises(RefusedError) as raised:
        RequestHeads().read(fields(count))
    assert raised.value.reply.status == 431
