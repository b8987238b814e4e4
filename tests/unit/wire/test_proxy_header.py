"""The PROXY protocol as balancers write it, cut at every byte, and what only looks like it."""

import socket

import pytest

from gateway.wire.proxyheader import ProxyHeaderError, announced, header_end

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V4 = socket.inet_pton(socket.AF_INET, "192.0.2.7") + socket.inet_pton(socket.AF_INET, "10.0.0.1") + b"\x30\x39\x01\xbb"
V6 = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::7")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + b"\x30\x39\x01\xbb"
)
TLVS = b"\x04\x00\x03abc" + b"\xea\x00\x05vpce-"


def binary(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes((0x20 | command, family)) + len(rest).to_bytes(2, "big") + rest


HEADERS = {
    b"PROXY TCP4 192.0.2.7 10.0.0.1 12345 443\r\n": "192.0.2.7",
    b"PROXY TCP6 2001:db8:0::7 2001:db8::1 12345 443\r\n": "2001:db8::7",
    b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n": "255.255.255.255",
    b"PROXY UNKNOWN\r\n": None,
    b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n": None,
    binary(1, 0x11, V4): "192.0.2.7",
    binary(1, 0x21, V6): "2001:db8::7",
    binary(1, 0x11, V4 + TLVS): "192.0.2.7",
    binary(1, 0x21, V6 + TLVS): "2001:db8::7",
    binary(0, 0x00, b""): None,
    binary(0, 0x11, V4): None,
    binary(1, 0x00, b""): None,
    binary(1, 0x00, TLVS): None,
    binary(1, 0x12, V4): None,
    binary(1, 0x31, bytes(216)): None,
}
NEITHER = [
    b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"PROXZ TCP4 192.0.2.7 10.0.0.1 1 2\r\n",
    b"proxy TCP4 192.0.2.7 10.0.0.1 1 2\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\r\nPROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n",
    b"PROXY TCP4 " + b"1" * 97,
    b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 1\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2 3\r\n",
    b"PROXY TCP4  192.0.2.7 10.0.0.1 1 2\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 1 65536\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 -1 2\r\n",
    b"PROXY TCP4 192.0.2.256 10.0.0.1 1 2\r\n",
    b"PROXY TCP4 2001:db8::7 2001:db8::1 1 2\r\n",
    b"PROXY TCP6 192.0.2.7 10.0.0.1 1 2\r\n",
    b"PROXY TCP4 \xff92.0.2.7 10.0.0.1 1 2\r\n",
    b"PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n",
    b"PROXY\r\n",
    b"PROXY \r\n",
    SIGNATURE + b"\x11\x11\x00\x0c" + V4,
    binary(2, 0x11, V4),
    binary(1, 0x11, V4[:-1]),
    binary(1, 0x21, V4),
    binary(1, 0x11, V4 + bytes(20_000)),
]


@pytest.mark.parametrize(("header", "address"), HEADERS.items())
def test_a_header_ends_where_it_ends_and_names_the_client(header: bytes, address: str | None) -> None:
    for cut in range(len(header)):
        assert header_end(header[:cut]) == -1
    assert header_end(header) == len(header)
    assert header_end(header + b"GET / HTTP/1.1\r\n\r\n") == len(header)
    assert announced(header) == address


@pytest.mark.parametrize("data", NEITHER)
def test_anything_else_is_an_error(data: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        announced(data[: header_end(data)])


@pytest.mark.parametrize("data", [data for data in NEITHER if not data.startswith((b"PROXY", SIGNATURE))])
def test_what_is_no_header_is_known_by_its_first_bytes(data: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        header_end(data[:8])
