"""Looking up names: at a DNS server of the test's own, and in the system's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from gateway.discovery.dns import Dns, DnsOptions
from gateway.discovery.member import Member
from tests.integration.wire.harness import until

from .apiserver import Sink

SERVICE = "_api._tcp.engines.test."


class Server(asyncio.DatagramProtocol):
    """Answers with `records` of SRV; none: the name does not exist."""

    def __init__(self) -> None:
        self.records: list[str] = []
        self.asked = 0
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.DatagramTransport) or hasattr(transport, "sendto")
        self._transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.asked += 1
        query = dns.message.from_wire(data)
        answer = dns.message.make_response(query)
        if self.records:
            answer.answer.append(dns.rrset.from_text(SERVICE, 0, "IN", "SRV", *self.records))
        else:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        assert self._transport is not None
        self._transport.sendto(answer.to_wire(), addr)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, int]]:
    protocol = Server()
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: protocol, local_addr=("127.0.0.1", 0)
    )
    yield protocol, transport.get_extra_info("sockname")[1]
    transport.close()


@contextlib.asynccontextmanager
async def looking(options: DnsOptions) -> AsyncIterator[Sink]:
    sink = Sink()
    task = asyncio.create_task(Dns(options).run(sink.found, sink.failed))
    try:
        yield sink
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_servers_of_a_service_come_from_its_best_records(server: tuple[Server, int]) -> None:
    protocol, port = server
    protocol.records = ["10 3 30001 a.test.", "10 1 30002 b.test.", "20 1 30003 backup.test."]
    options = DnsOptions(SERVICE, "SRV", None, "http", 0.02, ("127.0.0.1", port))
    async with looking(options) as sink:
        await until(lambda: bool(sink.sets))
        assert sink.sets == [[Member("http://a.test:30001", weight=3.0), Member("http://b.test:30002", weight=1.0)]]

        protocol.records = protocol.records[:1]
        await until(lambda: len(sink.sets) == 2)
        assert sink.sets[-1] == [Member("http://a.test:30001", weight=3.0)]


async def test_a_name_that_is_not_found_any_more_changes_nothing(server: tuple[Server, int]) -> None:
    protocol, port = server
    protocol.records = ["10 3 30001 a.test."]
    async with looking(DnsOptions(SERVICE, "SRV", None, "http", 0.02, ("127.0.0.1", port))) as sink:
        await until(lambda: bool(sink.sets))
        protocol.records = []
        await until(lambda: bool(sink.errors) and sink.errors[-1] is not None)

        assert len(sink.sets) == 1

        protocol.records = ["10 3 30001 a.test."]
        await until(lambda: sink.errors[-1] is None)
        assert len(sink.sets) == 1


async def test_a_host_is_all_of_its_addresses() -> None:
    async with looking(DnsOptions("127.0.0.1", "A", 30000, "https", 600.0)) as sink:
        await until(lambda: bool(sink.sets))
        assert sink.sets == [[Member("https://127.0.0.1:30000")]]


async def test_a_host_that_does_not_exist_is_a_failure() -> None:
    async with looking(DnsOptions("no.such.host.invalid", "A", 1, "http", 600.0)) as sink:
        await until(lambda: bool(sink.errors))
        assert sink.sets == []
        assert "no.such.host.invalid" in str(sink.errors[0])
