"""The gRPC service that Envoy asks: takes streams in, has each one followed, and writes what Envoy is to be told.

A `gateway.dataplane.DataPlane`. Knows nothing of what is said in a stream: that is stream.py's.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import structlog
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from gateway.control.config import Config
from gateway.control.eppconfig import EppConfig
from gateway.epp.fit import fitted
from gateway.epp.stream import Stream
from gateway.epp.transport import MemoryTransport

if TYPE_CHECKING:
    from gateway.wire.address import Address
    from gateway.wire.connection import UpstreamConnection
    from gateway.wire.exchange import Exchange

log = structlog.get_logger("steplane.epp")

_SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
_OVERHEAD_BYTES: Final = 1024 * 1024
"""Of a message beside a body: headers, attributes, metadata."""


class EndpointPicker:
    """See the module."""

    def __init__(self) -> None:
        self._server: grpc.aio.Server | None = None
        self._protocol: Callable[[str], Any]
        self._stand_ins: tuple[socket.socket, ...] = ()

    # --- DataPlane

    def fit(self, config: Config) -> Config:
        return fitted(config)

    async def start(self, config: Config, protocol: Callable[[str], Any]) -> tuple[str, int]:
        self._protocol = protocol
        # Nothing comes of these; the data plane asks the socket of a client that it does not read whether that lives.
        self._stand_ins = socket.socketpair()
        largest = config.limits.max_body_bytes + _OVERHEAD_BYTES
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", largest),
                ("grpc.max_send_message_length", largest),
                ("grpc.so_reuseport", 0),
            ]
        )
        method = grpc.stream_stream_rpc_method_handler(
            self._process,
            request_deserializer=ext_proc.ProcessingRequest.FromString,
            response_serializer=ext_proc.ProcessingResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Process": method}),))
        port = _bind(server, config.epp, config.folder)
        await server.start()
        self._server = server
        return config.epp.listen.host, port

    def carry(self, connection: UpstreamConnection, exchange: Exchange, address: Address | None) -> None:
        transport: Any = exchange.client.transport
        assert isinstance(transport, MemoryTransport)
        assert isinstance(transport.carried, Stream)
        transport.carried.carry(connection, exchange, address)

    async def drain(self, delay_s: float, within_s: float) -> None:
        await asyncio.sleep(delay_s)
        if self._server is not None:
            await self._server.stop(within_s)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
        for each in self._stand_ins:
            each.close()

    # --- inside

    async def _process(self, requests: AsyncIterator[Any], context: Any) -> None:
        """One stream, for as long as Envoy keeps it open."""
        waiting: asyncio.Queue[Any] = asyncio.Queue()
        stream = Stream(self._protocol, waiting.put_nowait, asyncio.get_running_loop(), self._stand_ins[0])
        reading = asyncio.create_task(_read(requests, stream, waiting))
        try:
            while (message := await waiting.get()) is not None:
                if isinstance(message, Exception):
                    reading.cancel()
                    await context.abort(grpc.StatusCode.INTERNAL, str(message))
                await context.write(message)
        finally:
            reading.cancel()
            stream.end()


async def _read(requests: AsyncIterator[Any], stream: Stream, waiting: asyncio.Queue[Any]) -> None:
    """Give the stream what Envoy says; at the end nothing more is waited for."""
    try:
        async for message in requests:
            stream.receive(message)
    except Exception as error:
        log.exception("stream_failed")
        waiting.put_nowait(RuntimeError(f"the endpoint picker failed, see its log: {error}"))
    else:
        waiting.put_nowait(None)


def _bind(server: grpc.aio.Server, config: EppConfig, folder: Path) -> int:
    """Listen as the configuration says; returns the port. Raises OSError."""
    place = str(config.listen)
    try:
        if config.tls is None:
            port = server.add_insecure_port(place)
        else:
            tls = config.tls
            certificate = (folder / tls.certificate).read_bytes()
            key = certificate if tls.key is None else (folder / tls.key).read_bytes()
            ca = None if tls.client_ca is None else (folder / tls.client_ca).read_bytes()
            credentials = grpc.ssl_server_credentials(
                [(key, certificate)], root_certificates=ca, require_client_auth=ca is not None
            )
            port = server.add_secure_port(place, credentials)
    except RuntimeError as error:
        raise OSError(f"{place}: {error}") from None
    return int(port)
