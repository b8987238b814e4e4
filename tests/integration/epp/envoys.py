"""A client that speaks `envoy.service.ext_proc.v3` as Envoy does, and a picker for it in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from google.protobuf import struct_pb2

from gateway.epp.mutations import header_list
from gateway.epp.service import EndpointPicker
from gateway.wire.message import Headers
from tests.integration.gateway.harness import CHAT, House, house
from tests.integration.wire.harness import PATIENCE_S

NONE, STREAMED, BUFFERED = ProcessingMode.NONE, ProcessingMode.STREAMED, ProcessingMode.BUFFERED
DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED
MODES = {"buffered": (BUFFERED, STREAMED), "whole": (BUFFERED, BUFFERED), "duplex": (DUPLEX, DUPLEX)}


def pairs(*headers: tuple[str, str]) -> Any:
    return base_pb2.HeaderMap(
        headers=[base_pb2.HeaderValue(key=name, raw_value=value.encode()) for name, value in headers]
    )


def asking(path: str = CHAT, *headers: tuple[str, str], method: str = "POST") -> Any:
    return pairs((":method", method), (":path", path), (":authority", "a"), (":scheme", "http"), *headers)


def applied(headers: Headers, mutation: Any) -> Headers:
    """The headers after a mutation, by Envoy's rules."""
    gone = {name.encode() for name in mutation.remove_headers}
    kept = [(name, value) for name, value in headers if name not in gone]
    for option in mutation.set_headers:
        name = option.header.key.encode()
        if option.append_action == base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD:
            kept = [each for each in kept if each[0] != name]
        kept.append((name, option.header.raw_value))
    return kept


class Sent:
    """What the engine gets. headers: with Envoy's own. said: what the decision was, as dynamic metadata."""

    def __init__(self, headers: Headers, body: bytes, said: dict[str, dict[str, str]]) -> None:
        self.headers = dict(headers)
        self.body = body
        self.said = said

    @property
    def endpoint(self) -> str:
        return self.headers[b"x-gateway-destination-endpoint"].decode()


class Talk:
    """One stream, for one request, in the given modes of its bodies."""

    def __init__(self, call: Any, request_mode: int, response_mode: int) -> None:
        self.call = call
        self._modes = ext_proc.ProtocolConfiguration(request_body_mode=request_mode, response_body_mode=response_mode)
        self._duplex = request_mode == DUPLEX
        self.duplex_response = response_mode == DUPLEX
        self._first = True

    async def say(self, *, offers: list[str] | None = None, **message: Any) -> None:
        request = ext_proc.ProcessingRequest(**message)
        if self._first:
            request.protocol_config.CopyFrom(self._modes)
            self._first = False
            if offers is not None:
                hint = struct_pb2.Struct()
                hint.update({"x-gateway-destination-endpoint-subset": offers})
                request.metadata_context.filter_metadata["envoy.lb.subset_hint"].CopyFrom(hint)
        await self.call.write(request)

    async def hear(self) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            answer = await self.call.read()
        assert answer is not grpc.aio.EOF, await self.call.code()
        return answer

    async def says_nothing(self) -> None:
        """The stream has ended without a further word."""
        async with asyncio.timeout(PATIENCE_S):
            assert await self.call.read() is grpc.aio.EOF

    async def headers(self, headers: Any, *, end: bool = False, **rest: Any) -> None:
        await self.say(request_headers=ext_proc.HttpHeaders(headers=headers, end_of_stream=end), **rest)

    async def body(self, data: bytes, *, end: bool = True) -> None:
        await self.say(request_body=ext_proc.HttpBody(body=data, end_of_stream=end))

    async def ask(self, headers: Any, data: bytes | None = None, *, pieces: int = 1, **rest: Any) -> Sent | Any:
        """Send a whole request. What the engine gets of it, or the immediate response."""
        await self.headers(headers, end=data is None, **rest)
        if data is not None:
            if not self._duplex:
                first = await self.hear()
                assert first.WhichOneof("response") == "request_headers", first
                assert not first.request_headers.response.header_mutation.set_headers
                pieces = 1
            size = -(-len(data) // pieces)
            for at in range(0, len(data), size):
                await self.body(data[at : at + size], end=at + size >= len(data))
        return await self.decision(header_list(headers), data)

    async def decision(self, headers: Headers, data: bytes | None) -> Sent | Any:
        answer = await self.hear()
        kind = answer.WhichOneof("response")
        if kind == "immediate_response":
            return answer.immediate_response
        said = {name: dict(part) for name, part in answer.dynamic_metadata.items()}
        if data is None:
            assert kind == "request_headers"
            return Sent(applied(headers, answer.request_headers.response.header_mutation), b"", said)
        if not self._duplex:
            assert kind == "request_body"
            common = answer.request_body.response
            changed = common.body_mutation.WhichOneof("mutation")
            return Sent(applied(headers, common.header_mutation), common.body_mutation.body if changed else data, said)
        assert kind == "request_headers"
        body, end = b"", False
        while not end:
            part = (await self.hear()).request_body.response.body_mutation.streamed_response
            assert len(part.body) <= 65_536
            body, end = body + part.body, part.end_of_stream
        return Sent(applied(headers, answer.request_headers.response.header_mutation), body, said)

    async def answered(self, *headers: tuple[str, str], end: bool = False) -> Headers:
        """The engine's headers have come. What the client gets."""
        told = pairs(*headers)
        await self.say(response_headers=ext_proc.HttpHeaders(headers=told, end_of_stream=end))
        answer = await self.hear()
        assert answer.WhichOneof("response") == "response_headers", answer
        return applied(header_list(told), answer.response_headers.response.header_mutation)

    async def piece(self, data: bytes, *, end: bool = False) -> bytes:
        """A piece of the engine's body has come. What the client gets for it."""
        await self.say(response_body=ext_proc.HttpBody(body=data, end_of_stream=end))
        return await self.passed(data, end=end)

    async def passed(self, data: bytes = b"", *, end: bool = False) -> bytes:
        answer = await self.hear()
        assert answer.WhichOneof("response") == "response_body", answer
        mutation = answer.response_body.response.body_mutation
        match mutation.WhichOneof("mutation"):
            case "streamed_response":
                assert self.duplex_response
                assert mutation.streamed_response.end_of_stream == end
                return bytes(mutation.streamed_response.body)
            case "body":
                return bytes(mutation.body)
            case "clear_body":
                return b""
        assert not self.duplex_response
        return data


class Picker:
    """house: the gateway and its engines."""

    def __init__(self, house: House, channel: Any) -> None:
        self.house = house
        self._stub = external_processor_pb2_grpc.ExternalProcessorStub(channel)

    def talk(self, request_mode: int = BUFFERED, response_mode: int = STREAMED) -> Talk:
        return Talk(self._stub.Process(), request_mode, response_mode)

    def endpoint(self, engine: str) -> str:
        return self.house.engines[engine].url.removeprefix("http://")


@contextlib.asynccontextmanager
async def picker(pools: Any = None, *, epp: Any = None, **options: Any) -> AsyncIterator[Picker]:
    """A picker before scripted engines; `options` are those of `house`."""
    config = {"epp": {"listen": "127.0.0.1:0", **(epp or {})}, **options.pop("config", {})}
    async with house(pools, plane=EndpointPicker(), config=config, **options) as running:
        host, port = running.gateway.data_address
        async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
            yield Picker(running, channel)


def json_of(immediate: Any) -> Any:
    return json.loads(immediate.body)["error"]
