"""A client that leaves is noticed by real SGLang, through the gateway no later than it would be without it."""

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
GENERATE: dict[str, Any] = {"text": "The sea is", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True}}
_WAIT_S = 30.0


def running(engine: str) -> int:
    """Requests that the engine at that URL runs or holds in its queue."""
    (load,) = httpx.get(f"{engine}/v1/loads?include=all", timeout=30).json()["loads"]
    return int(load["num_running_reqs"] + load["num_waiting_reqs"])


def leave(url: str, engine: str, path: str, body: dict[str, Any]) -> float:
    """Ask at `url`, leave once the engine runs the request; seconds until the engine has dropped it."""
    host, port = url.removeprefix("http://").split(":")
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as client:
        client.sendall(head.encode() + data)
        _wait_for(engine, idle=False)
        if body.get("stream"):
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
    left = time.monotonic()
    _wait_for(engine, idle=True)
    return time.monotonic() - left


def _wait_for(engine: str, *, idle: bool) -> None:
    deadline = time.monotonic() + _WAIT_S
    while (running(engine) == 0) is not idle:
        assert time.monotonic() < deadline, f"the engine is {'still busy' if idle else 'idle'} after {_WAIT_S:.0f} s"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"model": MODEL, "prompt": "The sea is", "max_tokens": 3000, "ignore_eos": True}),
        ("/v1/completions", {"model": MODEL, "prompt": ["The sea", "A"], "max_tokens": 3000, "ignore_eos": True}),
        ("/v1/responses", {"model": MODEL, "input": "Tell me about the sea.", "max_output_tokens": 3000}),
        ("/generate", GENERATE),
    ],
    ids=["chat", "completion", "completions of two prompts", "response", "generate"],
)
def test_sglang_drops_an_unstreamed_request_much_sooner_than_it_would_by_itself(
    path: str, body: dict[str, Any], served: Served, figures: list[str]
) -> None:
    (engine,) = served.replicas.values()
    direct = leave(engine, engine, path, body)
    through = leave(served.url, engine, path, body)
    figures.append(f"{path} left unstreamed: dropped after {through:.3f} s through the gateway, {direct:.3f} s direct")
    assert through < direct / 2, f"{through:.2f} s through the gateway, {direct:.2f} s direct"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**CHAT, "stream": True}),
        ("/v1/chat/completions", {**CHAT, "stream": True, "n": 2}),
        ("/generate", {**GENERATE, "stream": True}),
    ],
    ids=["chat", "two choices", "generate"],
)
def test_sglang_drops_a_stream_that_nobody_reads_much_sooner_than_an_unstreamed_request(
    path: str, body: dict[str, Any], served: Served, figures: list[str]
) -> None:
    (engine,) = served.replicas.values()
    unstreamed = leave(engine, engine, path, {**body, "stream": False})
    direct = leave(engine, engine, path, body)
    through = leave(served.url, engine, path, body)
    figures.append(
        f"{path} left in mid-stream: dropped after {through:.3f} s through the gateway, {direct:.3f} s direct"
    )
    assert through < unstreamed / 2, f"{through:.2f} s through the gateway, unstreamed {unstreamed:.2f} s direct"
