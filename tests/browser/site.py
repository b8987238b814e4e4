"""A running `steplane up` on ports that stay the same over a restart, and clients that keep it busy."""

import os
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from tests.clients.processes import answers, free_port, running

_START_S = 90.0
_ANSWER_S = 60.0
_PAUSE_S = 0.1
MODEL = "steplane-simulator"
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
"""A title that would be a program, were it taken for HTML."""

_TRIP = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PLAIN: dict[str, Any] = {"max_tokens": 24}
STRUCTURED: dict[str, Any] = {
    "max_tokens": 24,
    "response_format": {"type": "json_schema", "json_schema": {"name": "trip", "schema": _TRIP}},
}
TITLED: dict[str, Any] = {
    "max_tokens": 8,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "evil", "schema": {"title": EVIL, "type": "array", "items": {"type": "integer"}}},
    },
}
# Cheap by prediction, and over the interactive pool's budget in each step.
BOMB: dict[str, Any] = {"max_tokens": 40, "logprobs": True, "top_logprobs": 20, "n": 40}

# Words and separators: llguidance needs milliseconds for each of its masks, here for sixteen sequences in each step.
HOLDS: dict[str, Any] = {"max_tokens": 40, "n": 16, "ebnf": "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]"}
_HARD_LIMIT_MS = "20"
"""Of the replicas' own watchdogs: nothing here but `HOLDS` comes near it."""


class Site:
    """The gateway's two ports."""

    def __init__(self) -> None:
        port, admin = free_port(), free_port()
        self.url, self.admin = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}"
        self._command = [sys.executable, "-m", "gateway.cli", "up", "--port", str(port), "--admin-port", str(admin)]
        self._running = ExitStack()

    def start(self) -> None:
        """Return when it is ready."""
        ready = answers(f"{self.admin}/readyz")
        environment = os.environ | {"STEPLANE_HARD_LIMIT_MS": _HARD_LIMIT_MS}
        self._running.enter_context(
            running("up-browser", self._command, ready=ready, start_s=_START_S, environment=environment)
        )

    def stop(self) -> None:
        """End it and its simulators."""
        self._running.close()

    def send(self, body: dict[str, Any], tenant: str = "acme") -> httpx.Response:
        """One request of a tenant."""
        message = {"model": MODEL, "messages": [{"role": "user", "content": "Say something that nobody shall read"}]}
        headers = {"authorization": f"Bearer {tenant}"}
        return httpx.post(f"{self.url}/v1/chat/completions", json=message | body, headers=headers, timeout=_ANSWER_S)

    def signature(self, body: dict[str, Any]) -> str:
        """The cost signature of a request."""
        message = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
        found: str = httpx.post(f"{self.admin}/api/v1/explain", json=message | body).json()["signature"]
        return found

    def do(self, path: str, **body: object) -> None:
        """Something that an operator does by the API."""
        httpx.post(f"{self.admin}{path}", json={"author": "test", "reason": "test"} | body).raise_for_status()


@contextmanager
def busy(site: Site) -> Iterator[None]:
    """A few requests a second, until the block ends."""
    over = threading.Event()

    def work(seed: int) -> None:
        choice = random.Random(seed)
        while not over.wait(_PAUSE_S):
            try:
                site.send(choice.choice((PLAIN, PLAIN, STRUCTURED)), choice.choice(("acme", "globex")))
            except httpx.HTTPError:
                continue  # it is being restarted

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
