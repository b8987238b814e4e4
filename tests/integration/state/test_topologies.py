"""Whatever stands behind the URL: a socket, TLS, a server that sentinels watch over, a cluster."""

import asyncio
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.clients.processes import free_port
from tests.integration.state.conftest import Join
from tests.integration.state.harness import RedisServer, first_lease
from tests.waiting import until

_BUS = 10_000
"""So far above the port of a cluster's node is that on which nodes talk to each other."""


async def test_a_socket_on_this_machine(tmp_path: Path, join: Join) -> None:
    path = tmp_path / "redis.sock"
    server = RedisServer(tmp_path / "redis", "--unixsocket", str(path)).start()
    try:
        here, there = await join(f"unix://{path}"), await join(f"unix://{path}?db=0")
        here.force("s", b"open")
        await until(lambda: there.value("s") == b"open", "heard there")
    finally:
        server.kill()


async def test_an_encrypted_connection_with_certificates_of_both_sides(
    server: RedisServer, tmp_path: Path, join: Join
) -> None:
    files = certificates(tmp_path)
    async with tls_before(server, files) as port:
        url = f"rediss://localhost:{port}"
        options: dict[str, Any] = {"ca_file": files / "ca.pem", "cert_file": files / "client.pem"}
        here, there = await join(url, **options), await join(server.url)
        here.force("s", b"open")
        await until(lambda: there.value("s") == b"open", "heard there")
        stranger = await join(url, start_wait_s=0.05)
        await until(lambda: "CERTIFICATE_VERIFY_FAILED" in (stranger.store.status().last_error or ""), "distrusted")


async def test_user_and_password_of_the_url(server: RedisServer, join: Join) -> None:
    server.call(
        "ACL",
        "SETUSER",
        "steplane",
        "on",
        ">p@ss",
        "~{steplane:*",
        "resetchannels",
        "&steplane:*",
        "+@all",
        "-@dangerous",
    )
    url = f"redis://steplane:p%40ss@127.0.0.1:{server.port}/0"
    here, there = await join(url), await join(url)
    here.force("s", b"open")
    await until(lambda: there.value("s") == b"open", "heard there")
    # A user who may not ask which run of the server it is gets leases all the same.
    await first_lease(here, 0.1)
    assert "p@ss" not in str(here.store.status())
    assert here.store.status().address == f"redis://127.0.0.1:{server.port}/0"


async def test_a_server_that_sentinels_replace(tmp_path: Path, join: Join) -> None:
    with sentinel(tmp_path) as (url, primary, replica):
        here, there = await join(url, timeout_s=1.0), await join(url, timeout_s=1.0)
        here.force("s", b"open")
        await until(lambda: there.value("s") == b"open", "heard there")
        await until(lambda: replica.call("HLEN", "{steplane:signature}:records") == 2, "replicated")
        primary.kill()
        here.force("t", b"open")
        await until(lambda: there.value("t") == b"open", "heard there through the other server", within_s=40)
        assert replica.call("ROLE")[0] == b"master"
        assert replica.call("HLEN", "{steplane:signature}:records") == 3


async def test_a_cluster(tmp_path: Path, join: Join) -> None:
    with cluster(tmp_path, 3) as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port},127.0.0.1:{nodes[1].port}"
        here, there = await join(url), await join(url)
        # Their records lie on different nodes.
        kinds = ["signature", "tenant", "grammar", "replica", "model"]
        for kind in kinds:
            there.store.records(kind)
        for number in range(50):
            for kind in kinds:
                here.store.force(kind, str(number), b"open")
        here.store.add("signature", "s", {"trips": 1.0})
        for kind in kinds:
            await until(lambda: len(there.store.records(kind)) == 50, f"{kind} known there")  # noqa: B023
        await until(lambda: there.added == [("s", {"trips": 1.0})], "counted there")
        sizes = [node.call("DBSIZE") for node in nodes]
        assert all(sizes)
        await first_lease(here, 0.1)
        outcomes: list[bool] = []
        there.advance("0", 1, b"closed", outcomes)
        await until(lambda: here.value("0") == b"closed", "advanced")
        assert outcomes == [True]


@contextmanager
def sentinel(directory: Path) -> Iterator[tuple[str, RedisServer, RedisServer]]:
    """A primary and a replica, and one sentinel that replaces the primary half a second after its death."""
    primary = RedisServer(directory / "primary").start()
    replica = RedisServer(directory / "replica", "--replicaof", "127.0.0.1", str(primary.port)).start()
    configuration = directory / "sentinel.conf"
    configuration.write_text(
        f"sentinel monitor states 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds states 500\n"
        "sentinel failover-timeout states 2000\n"
    )
    watching = RedisServer(directory / "sentinel", str(configuration), "--sentinel").start()
    try:
        yield f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{watching.port}/states/0", primary, replica
    finally:
        for server in (watching, replica, primary):
            server.kill()


@contextmanager
def cluster(directory: Path, size: int) -> Iterator[list[RedisServer]]:
    """A cluster of primaries, with the slots dealt out evenly."""
    arguments = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-config-file", "nodes.conf")
    nodes = []
    try:
        for number in range(size):
            node = RedisServer(directory / f"node{number}", *arguments, port=free_port(_BUS))
            nodes.append(node)
            node.start()
        for number, node in enumerate(nodes):
            first, last = 16384 * number // size, 16384 * (number + 1) // size
            node.call("CLUSTER", "ADDSLOTS", *range(first, last))
            node.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in nodes[1:]:
            nodes[0].call("CLUSTER", "MEET", "127.0.0.1", node.port)
        deadline = time.monotonic() + 30
        while not all(b"cluster_state:ok" in node.call("CLUSTER", "INFO") for node in nodes):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield nodes
    finally:
        for node in nodes:
            node.kill()


def certificates(directory: Path) -> Path:
    """An authority, and certificates that it signed for a server at localhost and for a client."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    for name in ("server", "client"):
        names = ("-addext", "subjectAltName=DNS:localhost")
        authority = ("-CA", "ca.pem", "-CAkey", "ca.key")
        openssl(
            "req",
            "-x509",
            *curve,
            *authority,
            *names,
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.crt",
            "-subj",
            f"/CN={name}",
        )
        (directory / f"{name}.pem").write_text(
            (directory / f"{name}.key").read_text() + (directory / f"{name}.crt").read_text()
        )
    return directory


@asynccontextmanager
async def tls_before(server: RedisServer, files: Path) -> AsyncIterator[int]:
    """A port that takes encrypted connections from known clients, and passes on what they say to the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "server.pem")
    context.load_verify_locations(files / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer), return_exceptions=True)

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with proxy:
        yield proxy.sockets[0].getsockname()[1]
