"""The requests of the bench: what a client of the OpenAI API sends, as bytes on the wire.

Owns the kinds of traffic and what is counted for each. Knows neither gateways nor clocks.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

UNIQUE = "@" * 16
"""The driver puts a number here that it has never sent before."""

_VARIANTS = 64
_FILE_BYTES = 4 * 2**20
"""Of large bodies there are fewer."""
_TEXT = "the engine steps all running sequences together so one slow hook sets the pace of every stream in it"

_HEADERS = (
    ("Accept-Encoding", "gzip, deflate"),
    ("Connection", "keep-alive"),
    ("Accept", "application/json"),
    ("Content-Type", "application/json"),
    ("User-Agent", "OpenAI/Python 2.8.1"),
    ("X-Stainless-Lang", "python"),
    ("X-Stainless-Package-Version", "2.8.1"),
    ("X-Stainless-OS", "Linux"),
    ("X-Stainless-Arch", "x64"),
    ("X-Stainless-Runtime", "CPython"),
    ("X-Stainless-Runtime-Version", "3.11.7"),
    ("Authorization", "Bearer sk-0123456789abcdef0123456789abcdef"),
    ("X-Stainless-Async", "false"),
    ("x-stainless-retry-count", "0"),
    ("x-stainless-read-timeout", "600"),
)
"""What openai-python 2.8 sends, in its order, without Host and Content-Length."""

_TRACE = ("traceparent", f"00-0123456789abcdef{UNIQUE}-0123456789abcdef-01")

_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 80},
        "email": {"type": "string", "format": "email"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "city": {"type": "string"},
        "country": {"type": "string", "enum": ["DE", "FR", "GB", "JP", "US"]},
        "score": {"type": "number"},
        "active": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
        "joined": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["name", "email", "age", "city", "country", "score", "active", "tags", "joined", "note"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of traffic; its cost is CPU time per `unit`."""

    name: str
    title: str
    connections: int
    rate: float = 0.0
    """Requests a second over all connections; 0: as fast as they go round."""
    schema: bool = False
    traced: bool = False
    """Every request has a header that no other has, as with distributed tracing."""
    chunks: int = 0
    """SSE events of each response, before [DONE]; 0: not a stream."""
    body_bytes: int = 1024
    """About so long is a request's body."""
    interval_us: int = 0
    """Between two events of a stream; negative: all streams tick together."""

    @property
    def unit(self) -> str:
        return "chunk" if self.chunks else "request"


KINDS = (
    Kind("plain", "small chat request", 16),
    Kind("schema", "the same with a 10-property schema", 16, schema=True),
    Kind("traced", "the same with a trace header", 16, traced=True),
    Kind("paced", "small chat request at 2,000/s", 16, rate=2000),
    Kind("chunk", "SSE chunk, 32 streams spread over the 5 ms step", 32, chunks=200, interval_us=5000),
    Kind("batch", "SSE chunk, 32 streams in step, as an engine's batch", 32, chunks=200, interval_us=-5000),
)


def request(kind: Kind, prompt: str, host: str) -> bytes:
    """One request, head and body; `prompt` may hold `UNIQUE`."""
    body: dict[str, object] = {
        "messages": [{"role": "user", "content": prompt}],
        "model": "bench",
        "max_tokens": kind.chunks or 64,
        "temperature": 0.7,
    }
    if kind.chunks:
        body |= {"stream": True, "seed": kind.interval_us}
    if kind.schema:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": _SCHEMA, "strict": True},
        }
    raw = json.dumps(body, separators=(",", ":")).encode()
    headers = [("Host", host), *_HEADERS, *([_TRACE] if kind.traced else []), ("Content-Length", str(len(raw)))]
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + raw


def write_requests(kind: Kind, host: str, path: Path) -> None:
    """Writes the driver's request file: no two prompts alike, of many lengths."""
    rng = random.Random(kind.name)
    with path.open("wb") as file:
        for _ in range(max(4, min(_VARIANTS, _FILE_BYTES // kind.body_bytes))):
            spare = kind.body_bytes - len(request(Kind("", "", 0), "", host).partition(b"\r\n\r\n")[2]) - len(UNIQUE)
            words = " ".join(rng.choices(_TEXT.split(), k=spare // 4))
            file.write(request(kind, UNIQUE + words[: spare - rng.randrange(200)], host) + b"\0")
