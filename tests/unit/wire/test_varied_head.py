"""Heads that bring a line of their own each time: recognised by what they share, and read the same as otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.requesthead import RequestHead, RequestHeads
from gateway.wire.variedhead import VariedHead

HEAD = (
    b"POST /v1/x HTTP/1.1\r\nHost: a\r\ntraceparent: 00-%b-01\r\nContent-Length: %b\r\n"
    b"x-request-id:%b\r\nX-Fixed: y\r\n\r\n"
)


def learned() -> VariedHead:
    """What a connection knows after two requests with a trace line and an id of their own."""
    heads, varied = RequestHeads(), VariedHead()
    heads.read(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nX-Fixed: y\r\n\r\n")
    spelled = HEAD % (b"aaaa", b"5", b"one")
    head, _ = heads.read(spelled)
    assert head.base is not None
    varied.keep(spelled, head)
    return varied


def seen(head: RequestHead) -> tuple[object, ...]:
    return (head.method, head.target, head.path, head.keep_alive, head.lines, head.request_id, sorted(head.headers))


@pytest.mark.parametrize("behind", [b"", b"{}", b"POST / HTTP/1.1\r\n"])
@pytest.mark.parametrize("values", [(b"bbbb", b"5", b"two"), (b"", b"12345", b""), (b"c" * 500, b"0", b"=,;")])
def test_a_head_of_the_same_pieces_is_read_as_if_it_were_taken_apart(
    values: tuple[bytes, bytes, bytes], behind: bytes
) -> None:
    spelled = HEAD % values

    head, end, length = learned().match(spelled + behind)

    expected, expected_length = RequestHeads().read(spelled)
    assert head is not None
    assert (end, length) == (len(spelled), expected_length)
    assert seen(head) == (*seen(expected)[:4], head.lines, *seen(expected)[5:])
    assert sorted(head.lines.split(b"\r\n")) == sorted(expected.lines.split(b"\r\n"))


@pytest.mark.parametrize(
    "data",
    [
        HEAD % (b"a\x00", b"5", b"x"),
        HEAD % (b"a\nContent-Length: 3", b"5", b"x"),
        HEAD % (b"a\r\nContent-Length: 3", b"5", b"x"),
        HEAD % (b"a\tb", b"5", b"x"),
        HEAD % (b"a", b"", b"x"),
        HEAD % (b"a", b"+5", b"x"),
        HEAD % (b"a", b"5 5", b"x"),
        HEAD % (b"a", b"5" * 20, b"x"),
        (HEAD % (b"a", b"5", b"x")).replace(b"Host: a", b"Host: b"),
        (HEAD % (b"a", b"5", b"x")).replace(b"X-Fixed: y", b"Transfer-Encoding: chunked"),
        (HEAD % (b"a", b"5", b"x"))[:-1],
        (HEAD % (b"a", b"5", b"x"))[:50],
        b"",
    ],
)
def test_whatever_differs_in_more_is_not_recognised(data: bytes) -> None:
    assert learned().match(data) == (None, -1, -1)


@given(st.binary(max_size=40), st.binary(max_size=6), st.binary(max_size=20))
def test_no_value_makes_it_see_another_message_than_the_parser_does(trace: bytes, length: bytes, ident: bytes) -> None:
    spelled = HEAD % (trace, length, ident)

    head, end, size = learned().match(spelled)

    if head is not None:
        expected, expected_size = RequestHeads().read(spelled)
        assert (end, size, head.request_id) == (len(spelled), expected_size, expected.request_id)


def test_it_matches_nothing_before_it_has_kept_a_head() -> None:
    assert VariedHead().match(HEAD % (b"a", b"5", b"x")) == (None, -1, -1)
