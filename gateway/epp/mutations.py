"""What Envoy is told: changes of headers and bodies, answers in the place of an engine's, and where a request goes.

Pure: from the bytes of our data plane to messages of envoy.service.ext_proc.v3. Field numbers are those of the package
xds-protos, which is generated from Envoy's own files.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.type.v3 import http_status_pb2
from google.protobuf import struct_pb2

from gateway.epp.http1 import FRAMING
from gateway.wire.message import Headers

ENDPOINT: Final = "x-gateway-destination-endpoint"
"""Of the Gateway API Inference Extension (its proposal 004): the header, and the key in `envoy.lb`, of the pick."""
SUBSET: Final = "x-gateway-destination-endpoint-subset"
"""The key in `envoy.lb.subset_hint` of those from which to pick."""
_LB: Final = "envoy.lb"
_HINT: Final = "envoy.lb.subset_hint"
_OURS: Final = "steplane"
_SAID: Final = (b"x-steplane-pool", b"x-steplane-route", b"x-steplane-replica")
_PIECE_BYTES: Final = 60_000
"""Of a body that is streamed to Envoy: below what it takes in one message, whatever its buffers."""

_OVERWRITE: Final = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
_APPEND: Final = base_pb2.HeaderValueOption.APPEND_IF_EXISTS_OR_ADD


def header_list(headers: Any) -> Headers:
    """Envoy's HeaderMap with lower-case names; newer ones fill `raw_value`, older ones `value`."""
    return [(each.key.lower().encode("latin-1"), each.raw_value or each.value.encode()) for each in headers.headers]


def parsed_lines(lines: bytes) -> Headers:
    """Header lines as our data plane spells them."""
    fields = [line.partition(b":") for line in lines.split(b"\r\n") if line]
    return [(name.strip().lower(), value.strip()) for name, _, value in fields]


def difference(before: Headers, after: Headers) -> Any:
    """The HeaderMutation that makes `after` of `before`; framing and pseudo-headers are Envoy's own."""
    old, new = _by_name(before), _by_name(after)
    mutation = ext_proc.HeaderMutation()
    for name, values in new.items():
        if old.get(name) != values:
            _set(mutation, name, values)
    mutation.remove_headers.extend([name.decode("latin-1") for name in old if name not in new])
    return mutation


def additions(headers: Headers) -> Any:
    """The HeaderMutation that sets these."""
    mutation = ext_proc.HeaderMutation()
    for name, values in _by_name(headers).items():
        _set(mutation, name, values)
    return mutation


def destination(endpoint: str, said: Headers) -> Headers:
    """The headers of a request that say where it goes: to Envoy, and to routes that look at them."""
    named = [(name, value) for name, value in said if name in _SAID]
    return [(ENDPOINT.encode(), endpoint.encode()), *named]


def metadata(endpoint: str, said: Headers) -> struct_pb2.Struct:
    """The dynamic metadata of a decision: `envoy.lb` for load balancers, `steplane` for access logs."""
    found = struct_pb2.Struct()
    found.update(
        {
            _LB: {ENDPOINT: endpoint},
            _OURS: {name.decode().rpartition("-")[2]: value.decode("latin-1") for name, value in said if name in _SAID},
        }
    )
    return found


def subset(context: Any) -> frozenset[str]:
    """The endpoints from which Envoy wants one to be picked; empty where it leaves that to us."""
    hint = context.filter_metadata.get(_HINT)
    if hint is None or SUBSET not in hint.fields:
        return frozenset()
    value = hint.fields[SUBSET]
    named = [each.string_value for each in value.list_value.values] or value.string_value.split(",")
    return frozenset(each.strip() for each in named if each.strip())


def immediate(status: int, headers: Headers, body: bytes, details: str) -> Any:
    """The answer that Envoy gives instead of asking an engine."""
    return ext_proc.ProcessingResponse(
        immediate_response=ext_proc.ImmediateResponse(
            status=http_status_pb2.HttpStatus(code=status),
            headers=additions([each for each in headers if each[0] not in FRAMING]),
            body=body,
            details=details,
        )
    )


def set_length(mutation: Any, length: int) -> None:
    """Say in a HeaderMutation how long the body is that comes with it."""
    _set(mutation, b"content-length", [b"%d" % length])


def streamed(body: bytes, *, end: bool) -> Iterator[Any]:
    """The BodyMutations that give Envoy a body, or the next part of one, in FULL_DUPLEX_STREAMED."""
    starts: Iterable[int] = range(0, len(body), _PIECE_BYTES) if body else (0,)
    for start in starts:
        piece = body[start : start + _PIECE_BYTES]
        last = end and start + _PIECE_BYTES >= len(body)
        response = ext_proc.StreamedBodyResponse(body=piece, end_of_stream=last)
        yield ext_proc.BodyMutation(streamed_response=response)


def replaced(body: bytes) -> Any:
    """The BodyMutation that puts this in the place of what came, which may be nothing."""
    return ext_proc.BodyMutation(body=body) if body else ext_proc.BodyMutation(clear_body=True)


def _by_name(headers: Headers) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name not in FRAMING and not name.startswith(b":"):
            found.setdefault(name, []).append(value)
    return found


def _set(mutation: Any, name: bytes, values: list[bytes]) -> None:
    for index, value in enumerate(values):
        mutation.set_headers.add(
            header=base_pb2.HeaderValue(key=name.decode("latin-1"), raw_value=value),
            append_action=_APPEND if index else _OVERWRITE,
        )
