"""One stream of Envoy's: the life of one HTTP request, from its headers to the end of its response.

Theory of operation. Nothing is decided here: the request is given to the data plane as a client of its own would bring
it, and what that writes for the replica is what Envoy is told to send. Envoy's report of the response is then given to
the data plane as if the replica had sent it, and what that writes for the client is what Envoy is told to pass on. So
rules, limits, queues, quarantine, breakers, metrics and logs are those of every other request. An answer of the data
plane's own becomes an immediate response.

Sans-I/O: messages in (`receive`), messages out (`send`). One event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import structlog
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from gateway.epp.http1 import HeadError, MessageReader, request_head, response_head
from gateway.epp.mutations import (
    additions,
    destination,
    difference,
    header_list,
    immediate,
    metadata,
    parsed_lines,
    replaced,
    set_length,
    streamed,
    subset,
)
from gateway.epp.transport import MemoryTransport
from gateway.wire.message import LAST_CHUNK, Headers, Reply, chunk, error_reply

if TYPE_CHECKING:
    import asyncio
    import socket

    from gateway.wire.address import Address
    from gateway.wire.connection import UpstreamConnection
    from gateway.wire.exchange import Exchange

log = structlog.get_logger("steplane.epp")

_Mode = processing_mode_pb2.ProcessingMode
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_BODILESS: Final = frozenset((204, 304))
_SOURCE: Final = "source.address"


class BrokenError(Exception):
    """A response that has begun can't be completed: Envoy is to break it off, as the replica did."""


class Stream:
    """See the module.

    over: Envoy needs to be told nothing more.
    """

    def __init__(
        self,
        protocol: Callable[[str], Any],
        send: Callable[[Any], None],
        loop: asyncio.AbstractEventLoop,
        stand_in: socket.socket,
    ) -> None:
        """What a stream is told, and whom it tells.

        protocol: makes the protocol of a client at an address.
        send:     takes each message for Envoy, in order; a BrokenError in the place of the last.
        stand_in: a socket that stays open.
        """
        self._protocol = protocol
        self._send = send
        self._loop = loop
        self._stand_in = stand_in
        self._client: Any = None
        self._connection: UpstreamConnection | None = None
        self._exchange: Exchange | None = None
        self._endpoint = ""
        self.over = False
        # The request, as it came and as it is to go on.
        self._modes = ext_proc.ProtocolConfiguration()
        self._headers: Headers = []
        self._body = b""
        self._address = ""
        self._subset: frozenset[str] = frozenset()
        self._begun = False
        self._bodiless = False
        self._trailers = False
        self._asked: MessageReader | None = None
        self._decided = False
        # The response.
        self._answer = MessageReader(response=True)
        self._answering = False
        """Envoy has told of its headers."""
        self._framed = False
        """Its body is given on in chunks."""
        self._untouched = False
        """It goes on as it comes: it is an error that the data plane wants to see as a whole first."""
        self._ended = False
        """Envoy was told the end of it."""
        self._feeding = False

    # --- from Envoy

    def receive(self, message: Any) -> None:
        """Envoy's next message."""
        if self.over:
            return
        kind = message.WhichOneof("request")
        try:
            if kind == "request_headers":
                self._request_headers(message)
            elif kind == "request_body":
                self._request_body(message.request_body)
            elif kind == "request_trailers":
                self._request_trailers()
            elif kind == "response_headers":
                self._response_headers(message.response_headers)
            elif kind == "response_body":
                self._response_body(message.response_body)
            elif kind == "response_trailers":
                self._response_trailers()
        except HeadError as error:
            self._refuse(error_reply(400, str(error), "bad_http"))

    def end(self) -> None:
        """Envoy has closed the stream: the response is complete, or its client has gone before."""
        self.over = True
        if self._answering and not self._framed and self._connection is not None:
            # Envoy tells of no bodies: this is where they end. It does not say whether before their time.
            self._connection.eof_received()
        self._leave()

    # --- from the data plane

    def carry(self, connection: UpstreamConnection, exchange: Exchange, address: Address | None) -> None:
        """A request of ours goes to `address`. Raises OSError."""
        if address is None:
            raise OSError("Envoy reaches no Unix socket of ours")
        if self._asked is not None:
            raise OSError("Envoy has sent the request on, and can't send it again")
        self._connection, self._exchange, self._endpoint = connection, exchange, str(address)
        self._asked = MessageReader(response=False)

        def closed() -> None:
            self._loop.call_soon(connection.connection_lost, None)

        connection.connection_made(MemoryTransport(self, self._asking, closed))

    def _asking(self, data: bytes) -> None:
        """The data plane writes what the replica is to get."""
        assert self._asked is not None
        self._asked.feed(data)
        if self._asked.complete and not self._decided:
            self._decided = True
            self._loop.call_soon(self._decide)  # the exchange may not be done with writing it

    def _answered(self, data: bytes) -> None:
        """The data plane writes what the client is to get."""
        self._answer.feed(data)
        if self._feeding:
            return
        if not self._answering:
            if self._answer.complete:
                self._loop.call_soon(self._reply)
        elif self._duplex_response:
            self._loop.call_soon(self._flush)

    def _client_closed(self) -> None:
        """The data plane is done with the client."""
        self._loop.call_soon(self._client.connection_lost, None)
        if self._answering and not self._answer.complete and not self._untouched and not self.over:
            self.over = True
            self._send(BrokenError("the response was broken off"))

    # --- the request

    def _request_headers(self, message: Any) -> None:
        told = message.HasField("protocol_config")
        self._modes = message.protocol_config if told else _modes_of_old()
        self._headers = header_list(message.request_headers.headers)
        self._subset = subset(message.metadata_context)
        self._address = _address_in(message.attributes)
        if message.request_headers.end_of_stream:
            self._bodiless = True
            self._give(request_head(self._headers, b""))
        elif self._modes.request_body_mode == _Mode.BUFFERED:
            self._tell(request_headers=ext_proc.HeadersResponse())
        elif not self._duplex_request:
            mode = _Mode.BodySendMode.Name(self._modes.request_body_mode)
            log.error("envoy_mode", request_body_mode=mode, expected="FULL_DUPLEX_STREAMED or BUFFERED")
            self._refuse(
                error_reply(
                    500,
                    f"Envoy's ext_proc filter sends no whole bodies: its request_body_mode is {mode}, "
                    "and must be FULL_DUPLEX_STREAMED or BUFFERED",
                    "ext_proc_mode",
                )
            )

    def _request_body(self, body: Any) -> None:
        duplex = self._duplex_request
        last = body.end_of_stream or not duplex
        if self._begun:
            piece = chunk(body.body) if body.body else b""
            self._give(piece + LAST_CHUNK if last else piece)
        elif last:
            self._body = body.body
            self._give(request_head(self._headers, b"content-length: %d\r\n" % len(body.body)) + body.body)
        else:
            self._give(request_head(self._headers, _CHUNKED) + (chunk(body.body) if body.body else b""))

    def _request_trailers(self) -> None:
        self._trailers = True
        if not self._duplex_request:
            self._tell(request_trailers=ext_proc.TrailersResponse())
        elif self._begun:
            self._give(LAST_CHUNK)
        else:
            self._give(request_head(self._headers, b"content-length: 0\r\n"))

    def _give(self, data: bytes) -> None:
        """Have the data plane read this of its client."""
        if not self._begun:
            self._begun = True
            self._answer = MessageReader(response=True, bodiless=(b":method", b"HEAD") in self._headers)
            self._client = self._protocol(self._address)
            transport = MemoryTransport(self, self._answered, self._client_closed, self._stand_in)
            self._client.connection_made(transport)
        if data:
            self._client.data_received(data)

    def _decide(self) -> None:
        """The request is written: tell Envoy what becomes of it."""
        asked, exchange = self._asked, self._exchange
        if self.over or asked is None or exchange is None:
            return
        if self._subset and self._endpoint not in self._subset:
            message = f"{self._endpoint}, where this request belongs, is not among the endpoints that Envoy offers"
            self._refuse(error_reply(503, message, "endpoint_not_offered"))
            return
        said = parsed_lines(exchange.response_lines)
        mutation = difference(self._headers, asked.headers + destination(self._endpoint, said))
        told = metadata(self._endpoint, said)
        body = asked.take()
        buffered = not self._bodiless and not self._duplex_request
        changed = buffered and body != self._body
        if changed and b"content-length" in dict(self._headers):
            set_length(mutation, len(body))  # or Envoy refuses the body for not being as long as was said
        common = ext_proc.CommonResponse(header_mutation=mutation, clear_route_cache=True)
        if buffered:
            if changed:
                common.body_mutation.CopyFrom(replaced(body))
            self._tell(request_body=ext_proc.BodyResponse(response=common), dynamic_metadata=told)
        else:
            self._tell(request_headers=ext_proc.HeadersResponse(response=common), dynamic_metadata=told)
            if not self._bodiless:
                for part in streamed(body, end=not self._trailers):
                    self._tell(request_body=_body_response(part))
                if self._trailers:
                    self._tell(request_trailers=ext_proc.TrailersResponse())
        self._body = b""

    def _reply(self) -> None:
        """The data plane has answered itself."""
        if not self.over:
            self.over = True
            answer = self._answer
            self._send(immediate(answer.status, answer.headers, answer.take(), _details(answer.status)))

    def _refuse(self, reply: Reply) -> None:
        """Answer for the data plane, which is told that the client has left."""
        self.over = True
        headers = [(b"content-type", reply.content_type), *parsed_lines(reply.headers)]
        self._send(immediate(reply.status, headers, reply.body, _details(reply.status)))
        self._leave()

    def _leave(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            client.connection_lost(None)

    # --- the response

    def _response_headers(self, message: Any) -> None:
        headers = header_list(message.headers)
        exchange, connection = self._exchange, self._connection
        if not self._decided or exchange is None or connection is None:
            # Of another filter, before we have said anything: nothing of it is ours.
            self.over = True
            self._tell(response_headers=ext_proc.HeadersResponse())
            self._leave()
            return
        status = int(dict(headers)[b":status"])
        framing = self._framing_of(status, headers, bodiless=message.end_of_stream)
        self._answering = True
        self._feed(response_head(status, headers, framing))
        if self._answer.head and exchange.first_byte_at == 0.0:
            self._reply()  # what came was none of a response
            return
        self._untouched = not self._answer.head
        mutation = (
            additions(parsed_lines(exchange.response_lines))
            if self._untouched
            else difference(headers, self._answer.headers)
        )
        common = ext_proc.CommonResponse(header_mutation=mutation)
        self._tell(response_headers=ext_proc.HeadersResponse(response=common))

    def _framing_of(self, status: int, headers: Headers, *, bodiless: bool) -> bytes:
        """How the data plane is told where the response ends."""
        length = dict(headers).get(b"content-length", b"")
        if (b":method", b"HEAD") in self._headers or status in _BODILESS:
            return b"content-length: %b\r\n" % length if length.isdigit() else b""
        if bodiless:
            return b"content-length: 0\r\n"
        if self._modes.response_body_mode == _Mode.NONE:
            return b""
        self._framed = True
        return _CHUNKED

    def _response_body(self, body: Any) -> None:
        piece = body.body
        data = chunk(piece) if piece else b""
        self._feed(data + LAST_CHUNK if body.end_of_stream else data)
        if self._untouched:
            self._answer.take()
            if self._duplex_response:
                self._pass_on(piece, end=body.end_of_stream)
            else:
                self._tell(response_body=_body_response(None))
        elif self._duplex_response:
            self._flush()
        else:
            passed = self._answer.take()
            mutation = None if passed == piece else replaced(passed)
            self._tell(response_body=_body_response(mutation))

    def _response_trailers(self) -> None:
        if self._framed:
            self._feed(LAST_CHUNK)
        if self._duplex_response and not self._untouched and not self._ended:
            rest = self._answer.take()
            if rest:
                self._pass_on(rest, end=False)
        if not self._ended:
            self._tell(response_trailers=ext_proc.TrailersResponse())

    def _flush(self) -> None:
        """Tell Envoy at once what the client is to get next; it may be the end before the replica's."""
        if self.over or self._ended:
            return
        rest = self._answer.take()
        self._ended = self._answer.complete
        if rest or self._ended:
            self._pass_on(rest, end=self._ended)

    def _pass_on(self, piece: bytes, *, end: bool) -> None:
        """A piece of the response's body; its `end`, too."""
        for mutation in streamed(piece, end=end):
            self._tell(response_body=_body_response(mutation))

    def _feed(self, data: bytes) -> None:
        """Have the data plane read this of its replica."""
        if self._connection is None or not data:
            return
        self._feeding = True
        try:
            self._connection.data_received(data)
        finally:
            self._feeding = False

    def _tell(self, **parts: Any) -> None:
        """Send Envoy a message of these parts."""
        self._send(ext_proc.ProcessingResponse(**parts))

    # --- what Envoy was set up for

    @property
    def _duplex_request(self) -> bool:
        return bool(self._modes.request_body_mode == _Mode.FULL_DUPLEX_STREAMED)

    @property
    def _duplex_response(self) -> bool:
        return bool(self._modes.response_body_mode == _Mode.FULL_DUPLEX_STREAMED)


def _modes_of_old() -> Any:
    """What an Envoy is taken to do that does not say it (before 1.33)."""
    return ext_proc.ProtocolConfiguration(request_body_mode=_Mode.BUFFERED, response_body_mode=_Mode.STREAMED)


def _body_response(mutation: Any) -> Any:
    if mutation is None:
        return ext_proc.BodyResponse()
    return ext_proc.BodyResponse(response=ext_proc.CommonResponse(body_mutation=mutation))


def _details(status: int) -> str:
    """What Envoy's access log says of an answer of ours."""
    return f"steplane_{status}"


def _address_in(attributes: Any) -> str:
    """The client's address, where Envoy was asked to send the attribute `source.address`; else nothing."""
    for found in attributes.values():
        if _SOURCE in found.fields:
            host, _, _ = found.fields[_SOURCE].string_value.rpartition(":")
            return str(host).strip("[]")
    return ""
