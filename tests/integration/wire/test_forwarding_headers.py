"""What a replica really gets to read of the client's whereabouts, request after request on real connections."""

from ipaddress import ip_network

import pytest

from gateway.wire.forwarding import Forwarding

from .harness import OK, Wire, answering, wire

BY_STRANGERS = Forwarding(x_forwarded=True)
BY_PROXIES = Forwarding(x_forwarded=True, rfc7239=True, via=b"steplane", trusted=(ip_network("127.0.0.0/8"),))


def request(*lines: bytes, host: bytes = b"api.example", target: bytes = b"/", body: bytes = b"x") -> bytes:
    head = (b"POST %b HTTP/1.1" % target, b"host: " + host, b"content-length: %d" % len(body), *lines)
    return b"\r\n".join((*head, b"", body))


def told(gateway: Wire, name: bytes) -> list[bytes | None]:
    return [message.header(name) for message in gateway.requests]


async def test_every_request_of_a_connection_is_told_of() -> None:
    async with wire(answering(OK), forwarding=BY_STRANGERS) as gateway:
        client = await gateway.client()
        for _ in range(3):
            assert (await client.ask(request())).status == 200
        assert told(gateway, b"x-forwarded-for") == [b"127.0.0.1"] * 3
        assert told(gateway, b"x-forwarded-proto") == [b"http"] * 3
        assert told(gateway, b"x-forwarded-host") == [b"api.example"] * 3


async def test_each_request_is_told_of_by_its_own_head() -> None:
    """Heads of one connection that differ, and heads that other connections have used before."""
    async with wire(answering(OK), forwarding=BY_PROXIES) as gateway:
        clients = [await gateway.client() for _ in range(2)]
        for number in range(4):
            for client in clients:
                said = b"X-Forwarded-For: 198.51.100.%d, 198.51.100.9" % number
                await client.ask(request(said, host=b"h%d" % (number % 2)))
                await client.ask(request(host=b"plain"))
        expected: list[bytes] = []
        for number in range(4):
            expected += [b"198.51.100.%d, 198.51.100.9, 127.0.0.1" % number, b"127.0.0.1"] * 2
        assert told(gateway, b"x-forwarded-for") == expected
        hosts = [host for number in range(4) for host in (b"h%d" % (number % 2), b"plain") * 2]
        assert told(gateway, b"x-forwarded-host") == hosts
        assert told(gateway, b"via") == [b"1.1 steplane"] * 16


@pytest.mark.parametrize("warm", [False, True], ids=["unknown head", "known head"])
@pytest.mark.parametrize(
    "line",
    [
        b"X-Forwarded-For: 10.0.0.1",
        b"x-forwarded-for:10.0.0.1",
        b"X-FORWARDED-PROTO: https",
        b"X-Forwarded-Host: evil.example",
        b"X-Forwarded-Port: 443",
        b"Forwarded: for=10.0.0.1",
        b"X-Real-IP: 10.0.0.1",
    ],
)
async def test_a_stranger_can_not_say_who_it_is(line: bytes, warm: bool) -> None:
    async with wire(answering(OK), forwarding=BY_STRANGERS) as gateway:
        client = await gateway.client()
        for number in range(3 if warm else 1):
            await client.ask(request(b"x-trace: %d" % number))
        for number in range(3):
            await client.ask(request(line, b"x-trace: a%d" % number))
        for message in gateway.requests:
            assert message.header(b"x-forwarded-for") == b"127.0.0.1"
            assert message.header(b"x-forwarded-proto") == b"http"
            assert message.header(b"x-forwarded-host") == b"api.example"
            for name in (b"x-forwarded-port", b"forwarded", b"x-real-ip"):
                assert message.header(name) is None


async def test_the_authority_of_the_target_is_what_was_asked_for() -> None:
    async with wire(answering(OK), forwarding=BY_STRANGERS) as gateway:
        await (await gateway.client()).ask(request(target=b"http://other.example/v1"))
        assert told(gateway, b"x-forwarded-host") == [b"other.example"]


async def test_without_a_configuration_everything_passes_as_it_came() -> None:
    async with wire(answering(OK)) as gateway:
        await (await gateway.client()).ask(request(b"X-Forwarded-For: 10.0.0.1", b"Via: 1.1 edge"))
        assert told(gateway, b"x-forwarded-for") == [b"10.0.0.1"]
        assert told(gateway, b"via") == [b"1.1 edge"]
        assert told(gateway, b"x-forwarded-proto") == [None]
