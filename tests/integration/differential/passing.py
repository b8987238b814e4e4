"""What must hold of a replica's answer: the client reads what h11 reads in it, or sees that something went wrong.

Owns the replica that answers as it is told, its client, and the comparison. What h11 refuses although RFC 9112 wants it
accepted is read by the recorder's strict reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import h11

from gateway.wire.limits import Timeouts
from tests.integration.wire.harness import ERROR_EVENT, PATIENCE_S, Client, Served, Wire, until, wire

from .answers import Answered
from .recorder import UnreadableError, fields_of, framed_body
from .sameness import DifferenceError

_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
_NOT_COMPARED = _HOP_BY_HOP | {b"content-length", b"x-request-id"}
_PATIENT = Timeouts(sweep_s=0.02, connect_s=PATIENCE_S, upstream_idle_s=PATIENCE_S)
"""On a busy machine nothing is given up that would have come."""
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\0\r\n]*)?")


@dataclass(frozen=True, slots=True)
class Whole:
    """A response that is complete; `fields` are those that are neither hop by hop nor of framing."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Passing:
    """A gateway in front of a replica that answers request `/N` with the N-th of `answers`."""

    def __init__(self) -> None:
        self.answers: Sequence[Answered] = ()
        self.gateway: Wire

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Passing]:
        """Until the end of the block; nothing may be left of it then."""
        async with wire(self._answer, timeouts=_PATIENT) as gateway:
            gateway.handler.held = frozenset((404,))
            self.gateway = gateway
            yield self

    async def _answer(self, served: Served) -> None:
        while True:
            request = await served.request()
            answered = self.answers[int(request.start.split(b" ")[1][1:])]
            for part in answered.parts:
                await served.send(part)
                await served.turn()
            if answered.end == "reset":
                served.reset()
            if answered.end != "keep":
                return

    async def check(self, answers: Sequence[Answered]) -> int:
        """How many were passed on whole. Raises DifferenceError."""
        self.answers, handler = answers, self.gateway.handler
        passed = 0
        client = await self.gateway.client()
        try:
            async with asyncio.timeout(PATIENCE_S):
                for number, answered in enumerate(answers):
                    failures = len(handler.failures)
                    got = await _asked(client, number, answered)
                    if got is not None and got.body.endswith(ERROR_EVENT):
                        got = None  # how a broken stream of events ends
                    if len(handler.failures) == failures or got is None or got.status != 502:
                        passed += _compared(answered, got)
                    elif answered.good and answered.end != "reset":
                        raise DifferenceError(f"refused: {handler.failures[-1]}\nfor {answered}")
                    if got is None or answered.version == b"1.0":
                        client.close()
                        client = await self.gateway.client()
        finally:
            client.close()
            await until(lambda: not self.gateway.server.connections)
            self._forget()
        return passed

    def _forget(self) -> None:
        gateway, handler = self.gateway, self.gateway.handler
        if handler.errors or len(handler.over) != len(handler.handled):
            raise DifferenceError(f"{len(handler.handled)} exchanges, {len(handler.over)} ends, {handler.errors}")
        for kept in (handler.handled, handler.over, handler.failures, handler.refusals, gateway._clients):
            kept.clear()
        for upstream in gateway.upstreams:
            upstream.requests.clear()
        for pool in gateway.pools:
            pool.drop_idle()


async def _asked(client: Client, number: int, answered: Answered) -> Whole | None:
    """What the client reads; None if that is broken off. Raises DifferenceError for what is no HTTP/1.1."""
    body = b"content-length: 3\r\n\r\nabc" if answered.method == b"POST" else b"\r\n"
    received, ended = b"", False
    with contextlib.suppress(ConnectionError):
        await client.send(b"%b /%d HTTP/%b\r\nhost: h\r\n%b" % (answered.method, number, answered.version, body))
        while not ended:
            got = _read(received, answered.method, ended=False)
            if got is not None:
                return got
            data = await client.read_some()
            received, ended = received + data, not data
    return _read(received, answered.method, ended=ended)


def _read(data: bytes, method: bytes, *, ended: bool) -> Whole | None:
    """The response in `data`, read strictly; None while it is incomplete. Raises DifferenceError."""
    try:
        return _strictly(data, method, ended=ended)
    except UnreadableError as error:
        raise DifferenceError(f"the client got what is no HTTP/1.1, {error}: {data!r}") from None


def _strictly(data: bytes, method: bytes, *, ended: bool) -> Whole | None:
    while True:
        head, end, data = data.partition(b"\r\n\r\n")
        if not end:
            return None
        first, *lines = head.split(b"\r\n")
        matched = _STATUS_LINE.fullmatch(first)
        if matched is None:
            raise UnreadableError("not a status line")
        status, fields = int(matched[1]), fields_of(lines)
        if status >= 200:
            break
    if method == b"HEAD" or status in (204, 304):
        return Whole(status, _compared_fields(fields), b"")
    if not any(name in (b"content-length", b"transfer-encoding") for name, _ in fields):
        return Whole(status, _compared_fields(fields), data) if ended else None
    framed = framed_body(fields, data)
    return None if framed is None else Whole(status, _compared_fields(fields), framed[0])


def _compared(answered: Answered, got: Whole | None) -> int:
    """1 for a response that was passed on whole, 0 for one that was visibly broken off. Raises DifferenceError."""
    if got is None:
        if answered.good and answered.end != "reset":
            raise DifferenceError(f"broken off: {answered}")
        return 0
    if got not in (_by_h11(answered), _by_strict(answered)):
        raise DifferenceError(f"the client got {got}\nh11 read {_by_h11(answered)}\nin {answered}")
    return 1


def _by_strict(answered: Answered) -> Whole | None:
    with contextlib.suppress(UnreadableError):
        return _strictly(answered.data, answered.method, ended=answered.end == "close")
    return None


def _by_h11(answered: Answered) -> Whole | None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method=answered.method, target="/", headers=[("host", "h")]))
    connection.send(h11.EndOfMessage())
    head: h11.Response | None = None
    body: list[bytes] = []
    with contextlib.suppress(h11.RemoteProtocolError):
        connection.receive_data(answered.data)
        if answered.end == "close":
            connection.receive_data(b"")
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                fields = [(name, value) for name, value in head.headers]
                return Whole(head.status_code, _compared_fields(fields), b"".join(body))
            elif not isinstance(event, h11.InformationalResponse):
                return None
    return None


def _compared_fields(fields: Sequence[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    named = {option.strip().lower() for name, value in fields if name == b"connection" for option in value.split(b",")}
    return tuple((name, value) for name, value in fields if name not in _NOT_COMPARED | named)
