"""TLS to replicas: who is trusted, what is shown, and files that are renewed."""

import asyncio
import os
import socket
import ssl
from pathlib import Path

import pytest

from gateway.wire.clienttls import ClientTls, TlsError, TlsOptions
from gateway.wire.failure import FailureKind
from gateway.wire.limits import Timeouts
from tests.integration.wire.certificates import Authority, lock, make_authority
from tests.integration.wire.harness import GET, PATIENCE_S, Served, wire

from .harness import NAME, PATIENT, Names, connect, kinds, placed


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path)


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    folder = tmp_path / "stranger"
    folder.mkdir()
    return make_authority(folder, "stranger")


def serving(authority: Authority, *, client_ca: Path | None = None, name: str = "server") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*map(str, authority.sign(name)))
    if client_ca is not None:
        context.load_verify_locations(str(client_ca))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_replica_whose_certificate_is_right_is_trusted(authority: Authority) -> None:
    async with placed(ssl=serving(authority)) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, tls=ClientTls(TlsOptions(ca=authority.file)))
        client = await gateway.client()
        for _ in range(2):
            assert (await client.ask(GET)).body == b"ok"
        (connection,) = pool._open
        spoken = connection._transport.get_extra_info("ssl_object")
        assert spoken.version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("options", "trusted"),
    [
        (TlsOptions(), False),
        (TlsOptions(verify=False), True),
        (TlsOptions(server_name="elsewhere.test", verify=False), True),
    ],
)
async def test_a_replica_of_an_unknown_authority_is_trusted_only_where_nothing_is_verified(
    authority: Authority, options: TlsOptions, trusted: bool
) -> None:
    async with placed(ssl=serving(authority)) as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port, tls=ClientTls(options))
        answer = await (await gateway.client()).ask(GET)
        assert answer.status == (200 if trusted else 502)
        if not trusted:
            assert kinds(gateway) == [FailureKind.connect_failed]
            assert b"certificate" in answer.body


@pytest.mark.parametrize(("server_name", "status"), [(None, 502), ("localhost", 200), ("elsewhere.test", 502)])
async def test_the_name_in_the_certificate_may_be_another_than_the_one_that_is_dialled(
    authority: Authority, server_name: str | None, status: int
) -> None:
    options = TlsOptions(ca=authority.file, server_name=server_name)
    async with placed(ssl=serving(authority)) as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port, NAME, resolver=Names(["127.0.0.1"]), tls=ClientTls(options))
        assert (await (await gateway.client()).ask(GET)).status == status


@pytest.mark.parametrize("shows", [False, True])
async def test_a_replica_that_asks_for_our_certificate_is_shown_it(authority: Authority, shows: bool) -> None:
    certificate, key = authority.sign("gateway")
    options = TlsOptions(ca=authority.file, certificate=certificate if shows else None, key=key if shows else None)
    context = serving(authority, client_ca=authority.file)
    async with placed(ssl=context) as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port, tls=ClientTls(options))
        assert (await (await gateway.client()).ask(GET)).status == (200 if shows else 502)


async def test_a_renewed_authority_counts_from_the_next_connection_on(
    authority: Authority, stranger: Authority
) -> None:
    async with placed(ssl=serving(authority)) as server, wire(timeouts=PATIENT) as gateway:
        trusted = stranger.folder / "trusted.pem"
        trusted.write_bytes(stranger.file.read_bytes())
        connect(gateway, server.port, tls=ClientTls(TlsOptions(ca=trusted), look_every_s=0.0))
        client = await gateway.client()
        assert (await client.ask(GET)).status == 502
        trusted.write_bytes(b"half wri")
        assert (await client.ask(GET)).status == 502  # what was read before stays in force
        trusted.write_bytes(authority.file.read_bytes())
        assert (await client.ask(GET)).status == 200


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_server_that_never_shakes_hands_is_given_up(authority: Authority, leaves: bool) -> None:
    begun = asyncio.Event()
    ended = asyncio.Event()

    async def script(served: Served) -> None:
        try:
            await served.read(1)
            begun.set()
            await served.rest()
        finally:
            ended.set()

    timeouts = PATIENT if leaves else Timeouts(sweep_s=0.02, connect_s=0.2)
    async with placed(script) as server, wire(timeouts=timeouts) as gateway:
        pool = connect(gateway, server.port, tls=ClientTls(TlsOptions(ca=authority.file)))
        client = await gateway.client()
        await client.send(GET)
        if leaves:
            await begun.wait()
            client.close()
        else:
            assert (await client.response()).status == 504
            assert kinds(gateway) == [FailureKind.connect_timeout]
            assert pool.connect_timeouts == 1
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()
        assert pool.open == 0


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut off"])
async def test_a_body_that_ends_with_the_connection_is_whole_only_if_the_replica_has_said_so(
    authority: Authority, cut: bool
) -> None:
    """Under TLS an end without its alert may be anybody's (RFC 9112 section 9.8)."""

    async def script(served: Served) -> None:
        await served.request()
        await served.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        if cut:  # the bare connection is closed beneath TLS
            with socket.socket(fileno=os.dup(served.writer.get_extra_info("socket").fileno())) as bare:
                bare.shutdown(socket.SHUT_RDWR)

    async with placed(script, ssl=serving(authority)) as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port, tls=ClientTls(TlsOptions(ca=authority.file)))
        client = await gateway.client()
        await client.send(GET)
        await client.head()
        assert await client.read(10) == b"5\r\nhello\r\n"
        if cut:
            await client.closed()
        else:
            assert await client.read(5) == b"0\r\n\r\n"
        (exchange,) = gateway.handler.over
        assert (exchange.failure is not None) is cut


async def test_files_that_change_while_many_connect_are_read_once_for_all(authority: Authority) -> None:
    tls = ClientTls(TlsOptions(ca=authority.file), look_every_s=0.0)
    before = tls.context
    authority.file.write_bytes(authority.file.read_bytes() + b"\n")
    contexts = await asyncio.gather(*(tls.refreshed() for _ in range(20)))
    assert len(set(contexts)) == 1
    assert contexts[0] is not before
    assert await tls.refreshed() is contexts[0]


def test_files_that_cannot_be_used_say_which_and_why(authority: Authority) -> None:
    certificate, key = authority.sign("gateway")
    _, other = authority.sign("other")
    locked = authority.sign("locked")
    lock(locked[1])
    missing = authority.folder / "missing.pem"
    for options, words in (
        (TlsOptions(ca=missing), (str(missing), "no such file")),
        (TlsOptions(ca=key), (str(key), "authorities")),
        (TlsOptions(certificate=missing), (str(missing), "no such file")),
        (TlsOptions(certificate=certificate, key=other), (str(other), "mismatch")),
        (TlsOptions(certificate=locked[0], key=locked[1]), (str(locked[1]), "encrypted")),
    ):
        with pytest.raises(TlsError) as raised:
            ClientTls(options)
        for word in words:
            assert word in str(raised.value).lower() or word in str(raised.value)
