"""What the APIs and the engines spell differently: request ids in bodies, ids to abort, errors in streams.

Pure. The facts are of SGLang 0.5.23 (entrypoints/openai/protocol.py, managers/io_struct.py), run as well as read.
"""

import orjson

from gateway.hookcost.features import Api, Features
from gateway.wire.message import error_document

_ID_FIELDS = {
    Api.chat: b"rid",
    Api.completions: b"rid",
    Api.generate: b"rid",
    Api.responses: b"request_id",
}
"""The body field that sets SGLang's request id; `/v1/messages` has none."""
_MAX_ABORTS = 512
"""A larger batch is left to the engine, which finds the closed connection within seconds: an abort each would take as
long, and the length of a batch is the client's choice."""
_MAX_GIVEN = 512
_SPACE = b" \t\r\n"


def spliced(body: bytes, features: Features, engine: str, engine_id: str) -> tuple[int, bytes]:
    """The engine's request id for a body: how much of `body` is sent, and what behind that. -1: nothing is changed.

    A client's own `rid` is left alone (see `given_ids`), but a `null` is none. `body` must be a JSON object.
    """
    field = _ID_FIELDS.get(features.api) if engine == "sglang" else None
    if field is None or features.rid_given:
        return -1, b""
    return overridden(body, field, engine_id)


def overridden(body: bytes, field: bytes, engine_id: str) -> tuple[int, bytes]:
    """A field behind all others: of duplicate keys the last one wins in the engine's parser.

    How much of `body` is sent, and what behind that: a large body is not copied for it.
    """
    end = body.rindex(b"}")
    before = body[end - 1 : end]
    empty = before == b"{" or (before in _SPACE and body[:end].rstrip(_SPACE).endswith(b"{"))
    return end, b'%b"%b":"%b"%b' % (b"" if empty else b",", field, engine_id.encode(), body[end:])


def given_ids(body: bytes, features: Features, engine: str, request_id: bytes) -> tuple[str, ...]:
    """The ids under which the engine knows a request whose client chose them; empty where it did not."""
    if engine == "vllm":
        return (request_id.decode("ascii"),)  # it takes over the header
    if engine != "sglang" or not features.rid_given:
        return ()
    rid = orjson.loads(body).get("rid")
    rids = rid if isinstance(rid, list) else [rid]
    return tuple([each for each in rids[:_MAX_GIVEN] if isinstance(each, str)])


def engine_ids(features: Features, engine: str, engine_id: str) -> tuple[str, ...]:
    """The ids under which SGLang's `/abort_request` finds the request; empty where only closing the connection helps.

    A batch of prompts runs under `id_0`, `id_1`, …; with n > 1 the samples get ids of their own, which nobody knows.
    """
    api = features.api
    if engine != "sglang" or api is Api.other or features.rid_given or features.n > features.batch:
        return ()
    if api is Api.messages:
        return (engine_id,)  # by the header that our plugin reads; without the plugin nobody has such an id
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
