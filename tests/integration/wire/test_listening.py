"""Where connections come in: IPv6, Unix and inherited sockets, TLS, and behind a balancer that names the client."""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import ssl
import stat
from pathlib import Path

import pytest

from gateway.wire.certificate import Certificate
from gateway.wire.forwarding import Forwarding
from gateway.wire.limits import Limits, Timeouts
from gateway.wire.listening import bind_tcp, bind_unix
from gateway.wire.lobby import Lobby
from gateway.wire.server import Server

from .certificates import Authority, make_authority
from .harness import GET, OK, QUICK, SSE_HEAD, Client, Forwarder, Served, Wire, answering, chunk, post, until, wire

TELLING = Forwarding(x_forwarded=True)
PROXY_V1 = b"PROXY TCP4 192.0.2.7 10.0.0.1 12345 443\r\n"
PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\x0a\x00\x00\x01\x30\x39\x01\xbb"
LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Certificate:
    return Certificate(*map(str, authority.sign("server")))


async def unix_client(gateway: Wire, path: Path) -> Client:
    return gateway.adopt(await asyncio.open_unix_connection(path))


async def tls_client(gateway: Wire, context: ssl.SSLContext) -> Client:
    return gateway.adopt(await asyncio.open_connection("127.0.0.1", gateway.port, ssl=context))


# --- addresses


async def test_ipv6_is_served_beside_ipv4_on_the_same_port() -> None:
    async with wire(answering(OK)) as gateway:
        host, port = await gateway.server.listen("::1", gateway.port)
        assert (host, port) == ("::1", gateway.port)
        six = gateway.adopt(await asyncio.open_connection("::1", port))
        assert (await six.ask(GET)).body == b"ok"
        assert (await (await gateway.client()).ask(GET)).body == b"ok"


def test_a_name_is_served_on_all_its_addresses_with_one_port() -> None:
    sockets = bind_tcp("localhost", 0)
    try:
        assert len({each.getsockname()[1] for each in sockets}) == 1
    finally:
        for each in sockets:
            each.close()


async def test_an_address_that_is_taken_is_named() -> None:
    async with wire(answering(OK)) as gateway:
        with pytest.raises(OSError, match=f"127.0.0.1:{gateway.port}: Address already in use"):
            await gateway.server.listen("127.0.0.1", gateway.port)


async def test_two_servers_share_a_port_that_both_want_to_share() -> None:
    async with wire(answering(OK)) as gateway:
        _, port = await gateway.server.listen("127.0.0.1", 0, reuse_port=True)
        other = Server(gateway.handler, Limits(), QUICK)
        await other.listen("127.0.0.1", port, reuse_port=True)
        clients = [gateway.adopt(await asyncio.open_connection("127.0.0.1", port)) for _ in range(40)]
        assert [(await client.ask(GET)).status for client in clients] == [200] * 40
        assert other.counts.connections
        assert gateway.server.counts.connections
        assert other.counts.connections + gateway.server.counts.connections == 40
        await other.close()


async def test_a_socket_that_was_bound_by_somebody_else_is_served() -> None:
    (inherited,) = bind_tcp("127.0.0.1", 0)
    port = inherited.getsockname()[1]
    async with wire(answering(OK)) as gateway:
        assert await gateway.server.listen(sock=inherited) == ("127.0.0.1", port)
        client = gateway.adopt(await asyncio.open_connection("127.0.0.1", port))
        assert (await client.ask(GET)).body == b"ok"


async def test_accepted_connections_send_at_once_and_notice_a_dead_peer() -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        await client.ask(GET)
        (connection,) = gateway.server.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


# --- Unix sockets


async def test_a_unix_socket_is_served_with_its_permissions_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "steplane.sock"
    async with wire(answering(OK), forwarding=TELLING) as gateway:
        assert await gateway.server.listen(path=str(path), mode=0o600) == (f"unix:{path}", 0)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        client = await unix_client(gateway, path)
        assert (await client.ask(post(b"abc"), b"POST")).body == b"ok"
        (request,) = gateway.requests
        assert (request.header(b"x-forwarded-for"), request.header(b"x-forwarded-proto")) == (None, b"http")
    assert not path.exists()
    assert os.listdir(tmp_path) == []


async def test_a_socket_that_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "steplane.sock"
    bind_unix(str(path)).close()
    assert path.is_socket()
    async with wire(answering(OK)) as gateway:
        await gateway.server.listen(path=str(path))
        assert (await (await unix_client(gateway, path)).ask(GET)).body == b"ok"


async def test_a_socket_on_which_somebody_listens_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "steplane.sock"
    async with wire(answering(OK)) as gateway:
        await gateway.server.listen(path=str(path))
        other = Server(Forwarder(), Limits(), QUICK)
        with pytest.raises(OSError, match="somebody listens there") as raised:
            await other.listen(path=str(path))
        assert raised.value.errno == errno.EADDRINUSE
        assert (await (await unix_client(gateway, path)).ask(GET)).body == b"ok"


@pytest.mark.parametrize(
    ("name", "said"),
    [("file", "is there already and is no socket"), ("no/such/folder", "No such file"), ("x" * 120, "too long")],
)
def test_a_path_that_can_not_be_a_socket_is_named(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match=said):
        bind_unix(str(tmp_path / name))
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


async def test_a_socket_that_another_process_has_put_in_its_place_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "steplane.sock"
    async with wire(answering(OK)) as gateway:
        await gateway.server.listen(path=str(path))
        path.unlink()
        successor = bind_unix(str(path))
    assert path.is_socket()
    successor.close()


async def test_a_client_on_a_unix_socket_that_leaves_while_nothing_is_read_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "steplane.sock"

    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await served.closed()

    async with wire(script) as gateway:
        await gateway.server.listen(path=str(path))
        client = await unix_client(gateway, path)
        await client.send(GET)
        await client.read_until(b"data: 1\n\n")
        (connection,) = gateway.server.connections
        for _ in range(100):
            await client.send(GET * 100)  # pipelined, until no more of it is read
            if connection.reading_paused:
                break
        client.close()
        await gateway.finished()
        assert gateway.handler.over[0].client_left


# --- TLS


async def test_tls_is_spoken_and_http_1_1_agreed_on(authority: Authority, certificate: Certificate) -> None:
    async with wire(answering(OK), forwarding=TELLING, listen={"certificate": certificate}) as gateway:
        context = authority.trusting()
        context.set_alpn_protocols(["h2", "http/1.1"])
        client = await tls_client(gateway, context)
        assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        for size in (3, 3_000_000):
            assert (await client.ask(post(bytes(size)), b"POST")).body == b"ok"
        assert [len(request.body) for request in gateway.requests] == [3, 3_000_000]
        assert [request.header(b"x-forwarded-proto") for request in gateway.requests] == [b"https"] * 2


async def test_a_stream_over_tls_arrives_as_it_is_written_and_ends_when_the_client_leaves(
    authority: Authority, certificate: Certificate
) -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await served.closed()

    async with wire(script, listen={"certificate": certificate}) as gateway:
        client = await tls_client(gateway, authority.trusting())
        await client.send(GET)
        await client.read_until(b"data: 1\n\n")
        client.writer.transport.abort()
        await gateway.finished()
        assert gateway.handler.over[0].client_left


async def test_a_refused_request_is_answered_over_tls(authority: Authority, certificate: Certificate) -> None:
    timeouts = Timeouts(sweep_s=0.02, linger_s=0.1)
    async with wire(answering(OK), timeouts=timeouts, listen={"certificate": certificate}) as gateway:
        client = await tls_client(gateway, authority.trusting())
        assert (await client.ask(b"NONSENSE\r\n\r\n")).status == 400
        await client.closed()


async def test_a_renewed_certificate_is_shown_to_new_connections_while_old_ones_go_on(
    authority: Authority, tmp_path: Path
) -> None:
    files = [tmp_path / "tls.pem", tmp_path / "tls.key"]

    def write(name: str) -> None:
        for source, target in zip(authority.sign(name, name), files, strict=True):
            target.write_bytes(source.read_bytes())

    def shown(client: Client) -> str:
        subject = client.writer.get_extra_info("peercert")["subject"]
        return dict(part[0] for part in subject)["commonName"]

    write("first")
    certificate = Certificate(*map(str, files))
    async with wire(answering(OK), listen={"certificate": certificate}) as gateway:
        old = await tls_client(gateway, authority.trusting())
        write("second")
        assert gateway.server.reload_certificates()
        new = await tls_client(gateway, authority.trusting())
        files[0].write_text("nonsense")
        assert not gateway.server.reload_certificates()
        newest = await tls_client(gateway, authority.trusting())
        assert [shown(client) for client in (old, new, newest)] == ["first", "second", "second"]
        assert [(await client.ask(GET)).body for client in (old, new, newest)] == [b"ok"] * 3


async def test_the_sweep_finds_a_renewed_certificate_by_itself(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.wire.certificate.LOOK_EVERY_S", 0.01)
    files = [tmp_path / "tls.pem", tmp_path / "tls.key"]
    for name in ("first", "second"):
        for source, target in zip(authority.sign(name), files, strict=True):
            target.write_bytes(source.read_bytes())
        if name == "first":
            certificate = Certificate(*map(str, files))
            before = certificate.context
    async with wire(answering(OK), listen={"certificate": certificate}):
        await until(lambda: certificate.context is not before)


async def test_a_client_without_the_certificate_that_is_asked_for_is_not_let_in(authority: Authority) -> None:
    asking = Certificate(*map(str, authority.sign("server")), client_ca=str(authority.file))
    async with wire(answering(OK), listen={"certificate": asking}) as gateway:
        known = await tls_client(gateway, authority.trusting(*authority.sign("client")))
        assert (await known.ask(GET)).body == b"ok"
        with contextlib.suppress(ssl.SSLError, ConnectionError):  # with TLS 1.3 a client hears of it when it reads
            stranger = await tls_client(gateway, authority.trusting())
            await stranger.send(GET)
            assert await stranger.rest() == b""
        await until(lambda: gateway.server.counts.tls_failures == 1)
        assert len(gateway.requests) == 1


@pytest.mark.parametrize("said", [GET, b"\x16\x03\x01\x00\x05hello", b""], ids=["http", "nonsense", "nothing"])
async def test_what_is_no_handshake_is_closed_and_counted(certificate: Certificate, said: bytes) -> None:
    timeouts = Timeouts(header_s=0.2, sweep_s=0.02)
    async with wire(timeouts=timeouts, listen={"certificate": certificate}) as gateway:
        client = await gateway.client()
        await client.send(said)
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in await client.rest()  # an alert, at most
        await until(lambda: gateway.server.counts.tls_failures == 1)


# --- the PROXY protocol


@pytest.mark.parametrize(
    ("header", "address"),
    [(PROXY_V1, b"192.0.2.7"), (PROXY_V2, b"192.0.2.7"), (LOCAL, b"127.0.0.1"), (b"PROXY UNKNOWN\r\n", b"127.0.0.1")],
    ids=["v1", "v2", "local", "unknown"],
)
@pytest.mark.parametrize("cut", [0, 1, 5, 13])
async def test_the_client_is_who_the_balancer_says(header: bytes, address: bytes, cut: int) -> None:
    """Cut anywhere, with the request close behind: not a byte of that may be lost."""
    async with wire(answering(OK), forwarding=TELLING, listen={"proxy_protocol": True}) as gateway:
        client = await gateway.client()
        await client.send(header[:cut])
        await client.turn()
        await client.send(header[cut:] + post(b"abc"))
        assert (await client.response(b"POST")).body == b"ok"
        assert (await client.ask(GET)).body == b"ok"
        assert [request.header(b"x-forwarded-for") for request in gateway.requests] == [address] * 2
        assert gateway.requests[0].body == b"abc"


async def test_the_header_comes_before_tls(authority: Authority, certificate: Certificate) -> None:
    listen = {"certificate": certificate, "proxy_protocol": True}
    async with wire(answering(OK), forwarding=TELLING, listen=listen) as gateway:
        plain = socket.create_connection(("127.0.0.1", gateway.port))
        plain.sendall(PROXY_V2)
        plain.setblocking(False)
        streams = await asyncio.open_connection(sock=plain, ssl=authority.trusting(), server_hostname="localhost")
        assert (await gateway.adopt(streams).ask(GET)).body == b"ok"
        (request,) = gateway.requests
        assert request.header(b"x-forwarded-for") == b"192.0.2.7"


@pytest.mark.parametrize(
    "said",
    [GET, b"PROXY TCP4 192.0.2.7\r\n" + GET, PROXY_V1[:-1], PROXY_V2[:20], b""],
    ids=["none", "bad", "cut", "cut v2", "nothing"],
)
async def test_without_the_header_nothing_is_served(said: bytes) -> None:
    timeouts = Timeouts(header_s=0.2, sweep_s=0.02)
    async with wire(timeouts=timeouts, listen={"proxy_protocol": True}) as gateway:
        client = await gateway.client()
        await client.send(said)
        await client.closed()
        await until(lambda: gateway.server.counts.proxy_failures == 1)
        assert gateway.requests == []


async def test_a_listener_that_expects_no_header_takes_it_for_nonsense() -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        assert (await client.ask(PROXY_V1 + GET)).status == 501


async def test_addresses_are_counted_as_the_balancer_tells_them() -> None:
    limits = Limits(max_connections_per_address=1)
    async with wire(answering(OK), limits=limits, listen={"proxy_protocol": True}) as gateway:
        first, second, other = [await gateway.client() for _ in range(3)]
        assert (await first.ask(PROXY_V1 + GET)).status == 200
        await second.send(PROXY_V1 + GET)
        await second.closed()
        assert (await other.ask(PROXY_V1.replace(b".7", b".8") + GET)).status == 200
        assert gateway.server.counts.address_full == 1


async def test_connections_that_say_nothing_do_not_outlast_a_drain(certificate: Certificate) -> None:
    async with wire(timeouts=Timeouts(header_s=60, drain_s=0.1), listen={"certificate": certificate}) as gateway:
        client = await gateway.client()
        await gateway.server.drain()
        await client.closed()


async def test_with_no_descriptor_left_accepting_pauses_and_goes_on() -> None:
    """The balancer's connections wait in the queue of the kernel meanwhile; asking again at once would spin."""
    async with wire(answering(OK), listen={"proxy_protocol": True}) as gateway:
        (lobby,) = gateway.server._listeners
        assert isinstance(lobby, Lobby)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        waiting = socket.socket()
        waiting.setblocking(False)
        hoard: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    hoard.append(os.dup(waiting.fileno()))
            with contextlib.suppress(BlockingIOError):
                waiting.connect(("127.0.0.1", gateway.port))
            await until(lambda: lobby._pause is not None)
        finally:
            for each in hoard:
                os.close(each)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client = gateway.adopt(await asyncio.open_connection(sock=waiting))
        assert (await client.ask(PROXY_V1 + GET)).status == 200
