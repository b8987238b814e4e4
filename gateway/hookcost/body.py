"""A request body's bytes to a JSON object, or the reason why it is none. Knows no field."""

import orjson

from gateway.hookcost.classification import Refusal

QUICK_BYTES = 48 * 1024
"""A body up to this size is parsed at once, in less than half a millisecond, whatever is in it."""
INLINE_BYTES = 128 * 1024
"""One up to this size, too, where it is mostly text."""
_MAX_CONTAINERS = 6_000
TOO_DEEP = "The request body is nested more than 1,024 levels deep, which no request needs."
_KINDS = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")


def takes_long(body: bytes) -> bool:
    """Whether a body is so large, or holds so many objects and arrays, that parsing it would hold up an event loop."""
    size = len(body)
    if size <= QUICK_BYTES or size > INLINE_BYTES:
        return size > QUICK_BYTES
    # Of a text with few of them this takes a fifth of the time of `count`, which looks at each byte.
    most = _MAX_CONTAINERS + 1
    return len(body.split(b"{", most)) + len(body.split(b"[", most)) - 2 > _MAX_CONTAINERS


def parse(body: bytes) -> dict[str, object] | Refusal:
    """The JSON object in `body`; of duplicate keys the last wins, as in the engines' own parsers.

    Stricter than Python's `json` in what no client sends by intent: NaN, lone surrogates, UTF-16 and compressed bodies
    are refused here, so that nothing reaches an engine that was not understood.
    """
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return Refusal(400, "invalid_json", _why(body, error))
    if isinstance(data, dict):
        return data
    kind = _KINDS.get(type(data), "a number")
    return Refusal(400, "invalid_json", f"The request body must be a JSON object, but is {kind}.")


def _why(body: bytes, error: orjson.JSONDecodeError) -> str:
    if not body:
        return "The request body is empty; a JSON object was expected."
    if body.startswith((_GZIP, _ZSTD)):
        return "The request body is compressed; send plain JSON without `Content-Encoding`."
    if body.startswith(_MARKS) or b"\x00" in body[:4]:
        return "The request body has a byte order mark or is UTF-16 or UTF-32; send UTF-8 without a mark."
    if "depth limit" in error.msg:
        return TOO_DEEP
    if "not valid UTF-8" in error.msg:
        return f"The request body is not valid UTF-8 at byte {_first_bad_byte(body)}."
    return f"The request body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})."


def _first_bad_byte(body: bytes) -> int:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0
