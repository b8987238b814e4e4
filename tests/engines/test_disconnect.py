"""A client that leaves stops its work on real SGLang, streamed or not."""

import json
import socket
import time
from typing import Any

import httpx
import pytest

from tests.clients.case import MODEL
from tests.clients.served import Served

pytestmark = pytest.mark.timeout(1800)

CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Tell me about the sea."}],
    "max_tokens": 3000,
    "ignore_eos": True,
}
COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "The sea is", "max_tokens": 3000, "ignore_eos": True}
GENERATE: dict[str, Any] = {"text": "The sea is", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}
RESPONSE: dict[str, Any] = {"model": MODEL, "input": "Tell me about the sea.", "max_output_tokens": 3000}
# At the pace of the tests 3000 tokens take more than a minute.
_WAIT_S = 30.0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", COMPLETION),
        ("/v1/completions", {**COMPLETION, "prompt": ["The sea is", "A boat"]}),
        ("/v1/completions", {**COMPLETION, "prompt": ["The sea is"]}),
        ("/v1/responses", RESPONSE),
        ("/generate", GENERATE),
        ("/generate", {**GENERATE, "text": ["The sea is", "A boat"]}),
        ("/v1/chat/completions", {**CHAT, "stream": True}),
        ("/v1/chat/completions", {**CHAT, "stream": True, "n": 2}),
        ("/v1/completions", {**COMPLETION, "stream": True}),
        ("/v1/responses", {**RESPONSE, "stream": True}),
        ("/generate", {**GENERATE, "stream": True}),
    ],
    ids=[
        "chat",
        "completion",
        "completions of two prompts",
        "completions of a list of one prompt",
        "response",
        "generate",
        "generate of two texts",
        "streamed chat",
        "streamed chat with two choices",
        "streamed completion",
        "streamed response",
        "streamed generate",
    ],
)
def test_the_engine_drops_a_request_whose_client_has_left(
    path: str, body: dict[str, Any], served: Served, figures: list[str]
) -> None:
    (engine,) = served.replicas.values()
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(request(host, path, body))
        wait_until(engine, busy=True)
        if body.get("stream"):
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
    left = time.monotonic()
    wait_until(engine, busy=False)
    kind = "a stream" if body.get("stream") else "an unstreamed request"
    figures.append(f"{path}, {kind}: dropped {1e3 * (time.monotonic() - left):.0f} ms after the client left")


def request(host: str, path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def wait_until(engine: str, *, busy: bool) -> None:
    """Until the engine at that URL has something in its batch or queue, or nothing."""
    deadline = time.monotonic() + _WAIT_S
    while is_busy(engine) is not busy:
        assert time.monotonic() < deadline, f"the engine is {'idle' if busy else 'still busy'} after {_WAIT_S:.0f} s"


def is_busy(engine: str) -> bool:
    (load,) = httpx.get(f"{engine}/v1/loads?include=all", timeout=_WAIT_S).json()["loads"]
    return bool(load["num_running_reqs"] + load["num_waiting_reqs"])
