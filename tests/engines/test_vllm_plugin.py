"""A real vLLM, measured and kept in time by the plugin that is installed beside it."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.clients.processes import answers, free_port, running
from tests.engines.build import MODEL, REPOSITORY, SHIMS, VLLM, build_environment, build_model, engine_environment

HARD_LIMIT_MS = 1_000
START_S = 600.0
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}


class Engine:
    """A served model and the feed beside it. vLLM adds eight digits to every id."""

    def __init__(self, url: str, feed: str) -> None:
        self.url = url
        self.feed = feed

    def post(self, path: str, rid: str, **body: Any) -> httpx.Response:
        fields = {"model": "tiny", "temperature": 0, "ignore_eos": True, **body}
        return httpx.post(f"{self.url}{path}", json=fields, headers={"x-request-id": rid}, timeout=120)

    def chat(self, rid: str, **body: Any) -> httpx.Response:
        messages = [{"role": "user", "content": "say it"}]
        return self.post("/v1/chat/completions", rid, **({"messages": messages, "max_tokens": 60} | body))

    def text(self, rid: str) -> str:
        return str(self.chat(rid, max_tokens=120).json()["choices"][0]["message"]["content"])

    def score(self, rid: str, words: int) -> httpx.Response:
        """Log probabilities of a whole prompt."""
        return self.post("/v1/completions", rid, prompt="word " * words, max_tokens=4, prompt_logprobs=20)

    def get(self, path: str) -> dict[str, Any]:
        document: dict[str, Any] = httpx.get(self.feed + path, timeout=30).json()
        return document

    def named(self) -> dict[str, dict[str, float]]:
        """Offenders by the id that their client gave."""
        found = self.get("/summary")["offenders"]
        return {offender["rid"].split("-")[1]: offender["kinds"] for offender in found}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """vLLM with the plugin, warmed up so that nothing is taken for warming up any more."""
    build_environment(VLLM)
    build_model(VLLM)
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(REPOSITORY)]
    subprocess.run(command, check=True)
    port, feed = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    serve = [
        *(str(VLLM.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODEL)),
        *("--served-model-name", "tiny", "--max-model-len", "4096", "--max-num-seqs", "32", "--dtype", "bfloat16"),
        *("--max-logprobs", "20", "--enforce-eager", "--host", "127.0.0.1", "--port", str(port)),
    ]
    environment = engine_environment() | {
        "PYTHONPATH": os.pathsep.join([str(site), str(SHIMS)]),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "STEPLANE_FEED_LISTEN": f"127.0.0.1:{feed}",
        "STEPLANE_HARD_LIMIT_MS": str(HARD_LIMIT_MS),
    }
    ready = answers(f"{url}/health", timeout_s=30)
    with running("vllm-plugin", serve, ready=ready, start_s=START_S, environment=environment):
        served = Engine(url, f"http://127.0.0.1:{feed}")
        for number in range(4):
            served.score(f"warm{number}", 30)
        yield served


def run_together(*calls: Any) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_whoever_costs_is_named_and_plain_requests_are_not(engine: Engine) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    run_together(
        *[lambda number=number: engine.chat(f"plain{number}") for number in range(4)],
        lambda: engine.chat("structured", response_format=schema),
        lambda: engine.chat("listed", logprobs=True, top_logprobs=20),
        lambda: engine.score("scored", 100),
    )
    named = engine.named()
    assert not [rid for rid in named if rid.startswith("plain")]
    assert {"grammar_fill", "grammar_accept"} <= set(named["structured"])
    assert "logprobs" in named["listed"]
    assert next(iter(named["scored"])) == "prompt_logprobs"
    assert engine.get("/summary")["notes"] == []


def test_the_hard_timer_ends_the_offender_and_its_batch_mates_get_what_they_would_have_got(engine: Engine) -> None:
    alone = engine.text("alone")
    texts: dict[str, str] = {}
    answer: dict[str, httpx.Response] = {}

    def mate(rid: str) -> None:
        texts[rid] = engine.text(rid)

    def offend() -> None:
        time.sleep(0.3)  # into the middle of its mates' answers
        # Prefilled in two passes: the first is over the limit, the second never comes.
        answer["bomb"] = engine.score("bomb", 3500)

    run_together(lambda: mate("mate1"), lambda: mate("mate2"), offend)
    choice = json.loads(answer["bomb"].text)["choices"][0]
    assert choice["finish_reason"] == "abort"
    assert choice["stop_reason"].startswith("step_budget_exceeded: hooks of one step took")
    assert texts == {"mate1": alone, "mate2": alone}
    offence = engine.get("/stacks")["offences"][0]
    assert (offence["rid"].split("-")[1], offence["kind"]) == ("bomb", "prompt_logprobs")


def test_the_feed_can_end_a_request_by_the_id_its_client_knows(engine: Engine) -> None:
    answer: dict[str, httpx.Response] = {}

    def ask() -> None:
        answer["long"] = engine.chat("long", max_tokens=3000)

    def end() -> None:
        while not engine.get("/summary")["step_runs"]:
            pass
        httpx.post(f"{engine.feed}/abort", json={"rid": "chatcmpl-long"}, timeout=30).raise_for_status()

    run_together(ask, end)
    choice = answer["long"].json()["choices"][0]
    assert choice["finish_reason"] == "abort"
    assert "step_budget_exceeded" in choice["stop_reason"]
