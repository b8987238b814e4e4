"""What goes over the socket between a worker and its supervisor's books: frames of MessagePack. Owns their form.

A frame is four bytes of length, then an array. A worker sends `[number, operation, arguments…]` and gets
`[number, answer]`, or `[number, null, what was wrong]`; `[0, kind, key, change, record]` tells of a change. Kinds, keys
and names of counters go as bytes, since they may be any string, lone surrogates included.
"""

import asyncio
from typing import Any

import msgspec

from gateway.state.ledger import Change, Operation
from gateway.state.stored import to_bytes, to_name

_LONGEST_BYTES = 256 * 1024 * 1024
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def frame(content: list[Any]) -> bytes:
    """One frame, to be written."""
    data = _encode(content)
    return len(data).to_bytes(4, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> list[Any]:
    """The next frame. Raises ConnectionError at the end and for what is none."""
    try:
        length = int.from_bytes(await reader.readexactly(4), "big")
        if length > _LONGEST_BYTES:
            raise ConnectionError(f"a frame of {length} bytes: something else than Steplane is at the other end")
        content: list[Any] = _decode(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        raise ConnectionError("the other side has closed the connection") from None
    except msgspec.DecodeError as error:
        raise ConnectionError(f"a frame that can't be read: {error}") from None
    return content


def packed_change(change: Change) -> list[Any]:
    """A change, to be sent."""
    fixed = [str(change.operation), to_bytes(change.key), change.token, change.ground, change.version]
    return [*fixed, change.ttl_s, change.value, change.fence, change.fence_token]


def unpacked_change(packed: list[Any]) -> Change:
    """The reverse of `packed_change`."""
    operation, key, token, ground, version, ttl_s, value, fence, fence_token = packed
    return Change(Operation(operation), to_name(key), token, ground, version, ttl_s, value, fence, fence_token)


def packed_totals(totals: dict[str, dict[str, float]]) -> list[Any]:
    """Counters by key and name, to be sent: pairs, in their order."""
    return [[to_bytes(key), [[to_bytes(n), v] for n, v in amounts.items()]] for key, amounts in totals.items()]


def unpacked_totals(packed: list[Any]) -> dict[str, dict[str, float]]:
    """The reverse of `packed_totals`."""
    return {to_name(key): {to_name(name): value for name, value in amounts} for key, amounts in packed}
