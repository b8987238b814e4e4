"""The chunked coding, read in every cut."""

import pytest

from gateway.wire.chunked import ChunkedBody, ChunkError

VALID = [
    (b"0\r\n\r\n", b""),
    (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    (b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", b"abc"),
    (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
    (b"000a\r\n01\r\n345\r\n9\r\n000\r\n\r\n", b"01\r\n345\r\n9"),
    (b"1;a\r\nx\r\n0;b=c\r\n\r\n", b"x"),
    (b'1 ; a="b;c"\r\nx\r\n0\r\n\r\n', b"x"),
    (b"1\r\nx\r\n0\r\nt: 1\r\nu: 2\r\n\r\n", b"x"),
]

INVALID = [
    b"\r\n",
    b"x\r\n",
    b"-1\r\n",
    b"+1\r\n",
    b" 1\r\n",
    b"0x1\r\n",
    b"1_0\r\n",
    b"1\n",
    b"1\rx",
    b"1;\0\r\n",
    b"1\r\nab",
    b"2\r\nab0\r\n",
    b"1\r\na\n",
    b"1\r\na\r\r\n",
    b"1" * 16 + b"\r\n",
    b"1;" + b"x" * 5000 + b"\r\n",
    b"0\r\n" + b"t: 1\r\n" * 5000 + b"\r\n",
    b"0\r\nt\n",
]


def feed_all(reader: ChunkedBody, parts: list[bytes]) -> None:
    for part in parts:
        reader.feed(part)


def cuts(data: bytes) -> list[list[bytes]]:
    halves = [[data[:at], data[at:]] for at in range(len(data) + 1)]
    return [*halves, [data[at : at + 1] for at in range(len(data))]]


@pytest.mark.parametrize(("coded", "body"), VALID)
@pytest.mark.parametrize("rest", [b"", b"GET / HTTP/1.1\r\n", b"\r\n"])
def test_a_valid_body_is_decoded_in_every_cut_and_what_follows_is_left(coded: bytes, body: bytes, rest: bytes) -> None:
    for parts in cuts(coded + rest):
        reader = ChunkedBody()
        decoded = left = b""
        for part in parts:
            if reader.complete:
                left += part
            else:
                piece, left = reader.feed(part)
                decoded += piece
        assert (decoded, left, reader.complete) == (body, rest, True)


@pytest.mark.parametrize("coded", INVALID, ids=range(len(INVALID)))
def test_an_invalid_body_is_refused_in_every_cut(coded: bytes) -> None:
    for parts in [[coded], [coded[:-1], coded[-1:]], [coded[at : at + 1] for at in range(len(coded))]]:
        reader = ChunkedBody()
        with pytest.raises(ChunkError):
            feed_all(reader, [*parts, b"\r\n"])
        assert not reader.complete


@pytest.mark.parametrize("coded", [coded for coded, _ in VALID])
def test_an_unfinished_body_is_not_complete(coded: bytes) -> None:
    for at in range(len(coded)):
        reader = ChunkedBody()
        reader.feed(coded[:at])
        assert not reader.complete
