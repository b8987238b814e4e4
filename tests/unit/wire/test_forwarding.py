"""What a replica is told of a client, by what is configured and by what the client said itself."""

from ipaddress import ip_network

import pytest

from gateway.wire.forwarding import Forwarding, Trail
from gateway.wire.message import Headers
from gateway.wire.requesthead import RequestHeads

X = Forwarding(x_forwarded=True, trusted=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")))
RFC = Forwarding(rfc7239=True, trusted=(ip_network("10.0.0.0/8"),))
STRANGER = "192.0.2.7"
PROXY = "10.1.2.3"

SAID: Headers = [
    (b"x-forwarded-for", b"198.51.100.1, 198.51.100.2"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"api.example"),
    (b"x-forwarded-port", b"443"),
    (b"x-real-ip", b"198.51.100.1"),
    (b"forwarded", b"for=198.51.100.1;proto=https"),
]


def lines(forwarding: Forwarding, fields: Headers, address: str, host: bytes = b"a", https: bool = False) -> Headers:
    spelled = forwarding.lines(Trail(host, False, fields), forwarding.peer(address, https))
    assert spelled == b"" or spelled.endswith(b"\r\n")
    pairs = [line.split(b": ", 1) for line in spelled.split(b"\r\n")[:-1]]
    return sorted((name, value) for name, value in pairs)


@pytest.mark.parametrize(
    ("address", "https", "expected"),
    [
        ("192.0.2.7", False, [(b"192.0.2.7", b"http")]),
        ("2001:db8::7", True, [(b"2001:db8::7", b"https")]),
        ("::ffff:192.0.2.7", False, [(b"192.0.2.7", b"http")]),
        ("fe80::1%eth0", False, [(b"fe80::1", b"http")]),
    ],
)
def test_x_forwarded_says_who_how_and_what_was_asked_for(address: str, https: bool, expected: Headers) -> None:
    client, proto = expected[0]
    assert lines(X, [], address, https=https) == [
        (b"x-forwarded-for", client),
        (b"x-forwarded-host", b"a"),
        (b"x-forwarded-proto", proto),
    ]


def test_what_a_stranger_says_is_dropped_whatever_it_is() -> None:
    assert lines(X, SAID, STRANGER) == lines(X, [], STRANGER)
    assert lines(RFC, SAID, STRANGER) == lines(RFC, [], STRANGER)


def test_what_a_trusted_proxy_says_is_added_to_and_otherwise_kept() -> None:
    assert lines(X, SAID, PROXY) == [
        (b"forwarded", b"for=198.51.100.1;proto=https"),
        (b"x-forwarded-for", b"198.51.100.1, 198.51.100.2, 10.1.2.3"),
        (b"x-forwarded-host", b"api.example"),
        (b"x-forwarded-port", b"443"),
        (b"x-forwarded-proto", b"https"),
        (b"x-real-ip", b"198.51.100.1"),
    ]
    assert dict(lines(RFC, SAID, PROXY))[b"forwarded"] == (
        b"for=198.51.100.1;proto=https, for=10.1.2.3;proto=http;host=a"
    )


def test_lists_that_came_in_two_headers_become_one() -> None:
    twice: Headers = [(b"x-forwarded-for", b"198.51.100.1"), (b"x-forwarded-for", b"198.51.100.2")]
    assert dict(lines(X, twice, PROXY))[b"x-forwarded-for"] == b"198.51.100.1, 198.51.100.2, 10.1.2.3"


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        ("10.255.0.1", True),
        ("11.0.0.1", False),
        ("::ffff:10.0.0.1", True),
        ("fd12::1", True),
        ("2001:db8::1", False),
        ("", False),
    ],
)
def test_a_proxy_is_trusted_by_its_address(address: str, trusted: bool) -> None:
    assert X.peer(address, False).trusted is trusted


def test_a_unix_socket_is_trusted_only_where_that_was_asked_for() -> None:
    assert Forwarding(x_forwarded=True, trusts_unix=True).peer("", False).trusted
    assert lines(X, SAID, "") == [(b"x-forwarded-host", b"a"), (b"x-forwarded-proto", b"http")]


@pytest.mark.parametrize(
    ("address", "host", "element"),
    [
        ("192.0.2.7", b"a", b"for=192.0.2.7;proto=http;host=a"),
        ("192.0.2.7", b"a.example:8080", b'for=192.0.2.7;proto=http;host="a.example:8080"'),
        ("2001:db8::7", b"a-b.c", b'for="[2001:db8::7]";proto=http;host=a-b.c'),
        ("2001:db8::7", b"[::1]", b'for="[2001:db8::7]";proto=http;host="[::1]"'),
        ("", b"", b"for=unknown;proto=http"),
    ],
)
def test_an_element_of_forwarded_quotes_what_is_no_token(address: str, host: bytes, element: bytes) -> None:
    assert lines(RFC, [], address, host) == [(b"forwarded", element)]


@pytest.mark.parametrize(("http10", "version"), [(False, b"1.1"), (True, b"1.0")])
def test_via_is_added_to_whoever_sent_it(http10: bool, version: bytes) -> None:
    via = Forwarding(via=b"steplane")
    peer = via.peer(STRANGER, False)
    assert via.lines(Trail(b"a", http10, []), peer) == b"via: %b steplane\r\n" % version
    fields = [(b"via", b"1.1 edge"), (b"via", b"1.0 inner")]
    assert via.lines(Trail(b"a", http10, fields), peer) == b"via: 1.1 edge, 1.0 inner, %b steplane\r\n" % version


def head(*more: bytes) -> bytes:
    return b"\r\n".join((b"GET / HTTP/1.1", b"host: a", b"accept: */*", *more, b"", b""))


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "known"])
@pytest.mark.parametrize(
    ("forwarding", "kept"),
    [
        (None, [b"X-Forwarded-For: 1.2.3.4", b"via: 1.1 edge"]),
        (X, [b"via: 1.1 edge"]),
        (Forwarding(via=b"us"), [b"X-Forwarded-For: 1.2.3.4"]),
    ],
    ids=["off", "x-forwarded", "via"],
)
def test_a_head_keeps_what_nobody_here_writes(forwarding: Forwarding | None, kept: list[bytes], known: bool) -> None:
    heads = RequestHeads(forwarding)
    if known:
        heads.read(head())
    read, _ = heads.read(head(b"X-Forwarded-For: 1.2.3.4", b"via: 1.1 edge"))
    assert read.lines == b"".join(line + b"\r\n" for line in (b"host: a", b"accept: */*", *kept))
    assert (read.trail is None) == (forwarding is None)


def test_heads_that_differ_in_the_client_s_address_alone_share_the_rest() -> None:
    heads = RequestHeads(X)
    first, _ = heads.read(head(b"x-forwarded-for: 198.51.100.1"))
    second, _ = heads.read(head(b"x-forwarded-for: 198.51.100.2"))
    third, _ = heads.read(head(b"x-forwarded-for: 198.51.100.3"))
    assert second.base is not None
    assert second.base is third.base
    assert [each.trail.fields for each in (first, second, third) if each.trail is not None] == [
        [(b"x-forwarded-for", b"198.51.100.%d" % number)] for number in (1, 2, 3)
    ]


def test_connection_can_name_away_what_a_client_says_of_others() -> None:
    read, _ = RequestHeads(X).read(head(b"connection: x-forwarded-for", b"x-forwarded-for: 1.2.3.4"))
    assert read.trail is not None
    assert read.trail.fields == []
