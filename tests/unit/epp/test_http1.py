"""Messages as HTTP/1.1 and back."""

import pytest

from gateway.epp.http1 import HeadError, MessageReader, request_head, response_head

PSEUDO = [(b":method", b"POST"), (b":path", b"/a?b"), (b":authority", b"h:1"), (b":scheme", b"https")]


def test_a_request_is_spelled_with_its_authority_and_without_old_framing() -> None:
    headers = [*PSEUDO, (b"a", b"1"), (b"content-length", b"99"), (b"expect", b"100-continue"), (b"te", b"x")]
    spelled = request_head(headers, b"content-length: 2\r\n")
    assert spelled == b"POST /a?b HTTP/1.1\r\nhost: h:1\r\na: 1\r\ncontent-length: 2\r\n\r\n"


@pytest.mark.parametrize(
    "bad", [(b"a", b"1\r\nb: 2"), (b"a\n", b"1"), (b"a", b"\0"), (b":path", b"/ HTTP/1.1\r\na: b")]
)
def test_nothing_breaks_out_of_its_line(bad: tuple[bytes, bytes]) -> None:
    with pytest.raises(HeadError):
        request_head([*PSEUDO, bad], b"")
    if not bad[0].startswith(b":"):
        with pytest.raises(HeadError):
            response_head(200, [bad], b"")


@pytest.mark.parametrize("headers", [[], PSEUDO[:1], PSEUDO[1:]])
def test_a_request_has_a_method_and_a_path(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(HeadError, match=":method"):
        request_head(headers, b"")


def test_a_response_is_read_byte_by_byte() -> None:
    reader = MessageReader(response=True)
    for byte in b"HTTP/1.1 200 OK\r\nA: 1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n":
        assert not reader.complete
        reader.feed(bytes([byte]))
    assert (reader.status, reader.headers[0], reader.take()) == (200, (b"a", b"1"), b"hi")
    assert reader.take() == b""
    assert reader.complete


def test_interim_responses_are_skipped() -> None:
    reader = MessageReader(response=True)
    reader.feed(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
    assert not reader.head
    reader.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert (reader.status, reader.headers, reader.complete) == (200, [(b"content-length", b"0")], True)


def test_the_answer_to_head_is_complete_with_its_headers() -> None:
    reader = MessageReader(response=True, bodiless=True)
    reader.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
    assert reader.complete


def test_a_request_is_read() -> None:
    reader = MessageReader(response=False)
    reader.feed(b"POST /a?b HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi")
    assert (reader.method, reader.target, reader.take(), reader.complete) == (b"POST", b"/a?b", b"hi", True)
