"""What Steplane makes of a client's bytes is what HAProxy makes of them, or nothing."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings

from .message import Message
from .proxies import Proxy
from .recorder import UnreadableError, take
from .sameness import check
from .streams import ENDING, Stream, streams
from .third import messages_in

SEEN = [
    b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET http://h/x HTTP/1.1\r\nhost: h\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: h\r\nx: a\r\n b\r\n\r\n",
    b"GET / HTTP/1.1\nhost: h\n\n",
    b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n1\t;a\r\nx\r\n0\r\n\r\n\r",
]
"""What the strategies take long to find."""


@settings(max_examples=250, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(stream=streams())
def test_any_bytes_reach_the_upstream_as_they_do_through_haproxy_or_not_at_all(
    runner: asyncio.Runner, proxies: tuple[Proxy, Proxy], stream: Stream
) -> None:
    runner.run(check(stream, *proxies))


@pytest.mark.parametrize("request_bytes", SEEN)
def test_what_is_hard_to_come_upon(runner: asyncio.Runner, proxies: tuple[Proxy, Proxy], request_bytes: bytes) -> None:
    runner.run(check(Stream(request_bytes * 2 + ENDING, None, ()), *proxies))


def test_the_gateway_has_nothing_to_say_about_it(proxies: tuple[Proxy, Proxy]) -> None:
    """No exception in its log, and it still runs."""
    for proxy in proxies:
        proxy.check()


def test_the_third_reader_reads_pipelined_requests() -> None:
    data = b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nhost: h\r\n\r\n" + ENDING
    assert [(each.method, each.target, each.body) for each in messages_in(data)] == [
        (b"POST", b"/a", b"abc"),
        (b"GET", b"/b", b""),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nx: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\nhost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nx : a\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\na",
        b"GET / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc0\r\n\r\n",
    ],
)
def test_the_recorder_does_not_read_what_could_be_read_in_two_ways(data: bytes) -> None:
    with pytest.raises(UnreadableError):
        take(data)


def test_a_message_is_the_same_without_what_a_proxy_may_change() -> None:
    plain = Message(b"GET", b"/x", ((b"host", b"h"), (b"a", b"1"), (b"b", b"2")), b"")
    proxied = Message(b"GET", b"http://H/x", ((b"b", b"2"), (b"a", b"1"), (b"x-forwarded-for", b"::1")), b"")
    assert plain.essence == proxied.essence
    assert plain.essence != Message(b"GET", b"/x", ((b"host", b"h"), (b"a", b"1")), b"").essence
