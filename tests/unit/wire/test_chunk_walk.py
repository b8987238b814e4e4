"""Following chunks without unpacking them: agrees with what unpacks them, wherever the reads are cut."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.wire.chunked import ChunkedBody, ChunkError
from gateway.wire.chunkwalk import BROKEN, COMPLETE, UNUSUAL, unusual, walk

EVENT = b"data: x\n\n"
CHUNK = b"9\r\n" + EVENT + b"\r\n"


@pytest.mark.parametrize(
    ("data", "left", "result"),
    [
        (CHUNK, 0, 0),
        (CHUNK * 3, 0, 0),
        (b"A\r\n" + bytes(10) + b"\r\n", 0, 0),
        (b"00a\r\n" + bytes(10) + b"\r\n", 0, 0),
        (CHUNK[:5], 0, 9),
        (CHUNK[5:], 9, 0),
        (CHUNK + CHUNK[:-1], 0, 1),
        (b"\n", 1, 0),
        (b"\r", 2, 1),
        (b"\r\n" + CHUNK, 2, 0),
        (bytes(4), 100, 96),
        (CHUNK + b"0\r\n\r\n", 0, COMPLETE),
        (b"\n0\r\n\r\n", 1, COMPLETE),
        (b"000\r\n\r\n", 0, COMPLETE),
        (b"", 0, 0),
    ],
)
def test_the_place_after_each_read_is_known(data: bytes, left: int, result: int) -> None:
    assert walk(data, left) == result


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"9\r\n" + EVENT + b"xx", 0),
        (b"9\r\n" + EVENT + b"\rx", 0),
        (b"9\r\n" + EVENT + b"x", 0),
        (b"8\r\n" + EVENT + b"\r\n", 0),
        (b"x", 1),
        (b"x", 2),
        (b"x\n", 2),
        (b"abcx\n", 5),
    ],
)
def test_a_chunk_that_does_not_end_where_it_should_is_broken(data: bytes, left: int) -> None:
    assert walk(data, left) == BROKEN


@pytest.mark.parametrize(
    "rest",
    [
        b"9",
        b"9\r",
        b"9;a=b\r\n" + EVENT + b"\r\n",
        b" 9\r\n",
        b"9 \r\n",
        b"\r\n",
        b"g\r\n",
        b"9\n",
        b"9\rx",
        b"1" * 14 + b"\r\n",
        b"0\r\n",
        b"0\r\n\r",
        b"0\r\nx: y\r\n\r\n",
        b"0\r\n\r\n\r\n",
        b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ],
)
@pytest.mark.parametrize("before", [b"", CHUNK, CHUNK * 3])
def test_what_is_unusual_is_pointed_at(before: bytes, rest: bytes) -> None:
    result = walk(before + rest, 0)
    assert result <= UNUSUAL
    assert unusual(result) == len(before)


CHUNKS = st.lists(st.binary(min_size=1, max_size=40), max_size=6)


@given(CHUNKS, st.lists(st.integers(0, 200), max_size=6), st.binary(max_size=3), st.integers(0, 200))
@example([b"\x00"], [5], b"\x00\x00", 3)
def test_it_never_takes_for_good_what_unpacking_does_not(
    parts: list[bytes], cuts: list[int], noise: bytes, place: int
) -> None:
    data = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    data = data[:place] + noise + data[place + len(noise) :]
    edges = [0, *sorted({cut for cut in cuts if cut < len(data)} - {0}), len(data)]
    strict, left = ChunkedBody(), 0
    for start, end in pairwise(edges):
        piece = data[start:end]
        left = walk(piece, left)
        try:
            _, rest = strict.feed(piece)
        except ChunkError:
            assert left in (BROKEN, *range(UNUSUAL - len(piece), UNUSUAL + 1))
            return
        if left == BROKEN:  # seen a byte earlier than unpacking does
            assert not strict.complete
            if end < len(data):
                with pytest.raises(ChunkError):
                    strict.feed(data[end:])
            return
        if left < 0:
            assert (left == COMPLETE) <= (strict.complete and not rest)
            return
        assert not strict.complete


def test_what_unpacks_them_says_how_to_go_on() -> None:
    coded = CHUNK + b"9;a=b\r\n" + EVENT + b"\r\n" + CHUNK + b"0\r\n\r\n"
    end = len(coded) - len(b"0\r\n\r\n")
    lines = [range(1, 3), range(len(CHUNK) + 1, len(CHUNK) + 7), range(end - len(CHUNK) + 1, end - len(CHUNK) + 3)]
    for cut in range(len(coded) + 1):
        body = ChunkedBody()
        body.feed(coded[:cut])
        assert (body.left < 0) is (cut > end or any(cut in line for line in lines))
        if body.left >= 0 and cut >= len(CHUNK) + 7:
            assert walk(coded[cut:], body.left) == COMPLETE
