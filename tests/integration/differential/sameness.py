"""What must hold of one stream of bytes: both upstreams see the same messages, or Steplane refuses.

Where HAProxy refuses and Steplane does not, h11 must read what Steplane has sent on.
"""

from __future__ import annotations

import asyncio
import re

from .message import Message
from .proxies import Proxy, understood
from .streams import Stream
from .third import messages_in

_CONNECTION = re.compile(rb"^connection:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)

_TRIES = 5
_TOO_SLOW = b"HTTP/1.1 408 "
"""On a busy machine the client itself may pause for longer than it is waited for."""
_NOT_JSON = b'"code":"invalid_json"'
"""Of a good request to a path whose bodies are looked into."""


class DifferenceError(AssertionError):
    """Two readers have read two things in the same bytes."""


async def check(stream: Stream, haproxy: Proxy, steplane: Proxy) -> int:
    """How many messages Steplane has sent on. Raises DifferenceError or ProxyError."""
    for _ in range(_TRIES):
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(understood(each, stream.parts, stream.requests)) for each in (haproxy, steplane)]
        theirs, ours = (each.result() for each in asked)
        if stream.requests is None or not ours.answers.count(_TOO_SLOW):
            break
    if ours.lost:
        raise DifferenceError(f"sent on without an answer to the client: {ours.lost}")
    named = _named(stream.data)
    reference = [each for each in theirs.at if each is not None] + theirs.lost
    third: list[Message] | None = None
    for at, message in enumerate(ours.at):
        if message is None:
            continue
        if at < len(reference):
            _same(message, reference[at], named, "HAProxy")
            continue
        if third is None:
            third = messages_in(stream.data)
        if at >= len(third):
            raise DifferenceError(f"neither HAProxy nor h11 has a message {at + 1}, Steplane sent on {message}")
        _same(message, third[at], named, "h11")
    sent_on = sum(message is not None for message in ours.at)
    if stream.requests is not None and stream.requests != sent_on + ours.answers.count(_NOT_JSON):
        raise DifferenceError(f"{stream.requests} good requests, {sent_on} sent on: {ours.answers!r}")
    return sent_on


def _named(data: bytes) -> frozenset[bytes]:
    """Headers that end at the first proxy, since a `Connection` header names them; HAProxy sends them on."""
    values = _CONNECTION.findall(data)
    return frozenset(option.strip().lower() for value in values for option in value.split(b",")) - {b"host"}


def _same(ours: Message, theirs: Message, named: frozenset[bytes], who: str) -> None:
    if ours.without(named).essence != theirs.without(named).essence:
        raise DifferenceError(f"Steplane sent on {ours}\n{who} read {theirs}")
