"""What the APIs and the engines spell differently: request ids in bodies, ids to abort, errors in streams.

Pure. The facts are of SGLang 0.5.23 (entrypoints/openai/protocol.py, managers/io_struct.py), run as well as read.
"""

import re

import orjson

from gateway.hookcost.features import Api, Features
from gateway.wire.message import error_document

_ID_FIELDS = {
    Api.chat: b'"rid":"',
    Api.completions: b'"rid":"',
    Api.generate: b'"rid":"',
    Api.responses: b'"request_id":"',
}
"""The body field that sets SGLang's request id; `/v1/messages` has none."""
_MAX_ABORTS = 512
"""A larger batch is left to the engine, which finds the closed connection within seconds: an abort each would take as
long, and the length of a batch is the client's choice."""
_EMPTY_OBJECT = re.compile(rb"\s*\}")


def spliced(body: bytes, features: Features, engine: str, engine_id: str) -> bytes | None:
    """`body` with the engine's request id put in front of its fields, or None where nothing is to be changed.

    With duplicate keys the last one wins in the engine's parser, so a client's own id is never overridden. `body` must
    be a JSON object; every byte of it is kept.
    """
    field = _ID_FIELDS.get(features.api) if engine == "sglang" else None
    if field is None or features.rid_given:
        return None
    start = 1 if body[:1] == b"{" else body.index(b"{") + 1
    comma = b'"' if body[start : start + 1] != b'"' and _EMPTY_OBJECT.match(body, start) else b'",'
    return b"%b%b%b%b%b" % (body[:start], field, engine_id.encode(), comma, body[start:])


def given_id(body: bytes, features: Features, engine: str, request_id: bytes) -> str | None:
    """The id under which the engine knows a request whose body was left as it was; None: nobody knows."""
    if engine == "vllm":
        return request_id.decode("ascii")  # it takes over the header
    if engine != "sglang" or not features.rid_given:
        return None
    rid = orjson.loads(body).get("rid")
    return rid if isinstance(rid, str) else None


def engine_ids(features: Features, engine: str, engine_id: str) -> tuple[str, ...]:
    """The ids under which SGLang's `/abort_request` finds the request; empty where only closing the connection helps.

    A batch of prompts runs under `id_0`, `id_1`, …; with n > 1 the samples get ids of their own, which nobody knows.
    """
    api = features.api
    if engine != "sglang" or api not in _ID_FIELDS or features.rid_given or features.n > features.batch:
        return ()
    if features.batch > _MAX_ABORTS:
        return ()
    batch = tuple(f"{engine_id}_{index}" for index in range(features.batch))
    if features.batch > 1:
        return batch
    # One prompt may have come as a string or as a list of one, which is a batch to the engine.
    return (engine_id,) if api is Api.chat else (engine_id, *batch)


def error_events(api: Api, message: str, code: str) -> bytes:
    """Server-sent events that end a stream with an error, as clients of each API understand them."""
    if api is Api.messages:
        error = {"type": "error", "error": {"type": "api_error", "message": message}}
        return b"event: error\ndata: %b\n\n" % orjson.dumps(error)
    if api is Api.responses:
        return b"event: error\ndata: %b\n\n" % orjson.dumps(
            {"type": "error", "code": code, "message": message, "param": None}
        )
    return b"data: %b\n\ndata: [DONE]\n\n" % error_document(502, message, code)


def has_ended(last_read: bytes) -> bool:
    """Whether the client had all it wanted of a stream: many close it at its last event, before its last chunk."""
    return last_read.rstrip(b"\r\n").endswith(_STREAM_ENDS) or b"event: response.completed" in last_read


_STREAM_ENDS = (b"data: [DONE]", b'data: {"type":"message_stop"}', b'data: {"type": "message_stop"}')
