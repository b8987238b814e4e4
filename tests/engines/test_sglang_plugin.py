"""A real SGLang, measured and kept in time by the plugin that is installed beside it.

The plugin is installed as pip installs it, into a folder of its own, so that the other engine tests run without it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines.build import REPOSITORY, SHIMS
from tests.engines.sglang_server import sglang

# Above what anything usual takes on a slow machine; a prompt of 1,500 tokens with its log probabilities takes seconds.
HARD_LIMIT_MS = 1_500
COMPILE_LIMIT_MS = 6_000
TOKENS = 60
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}
# Open objects with many names are what xgrammar compiles for minutes.
ENDLESS = {
    "type": "object",
    "properties": {f"p{number}_{'abcdefghij'[number % 10] * 8}": {"type": "string"} for number in range(300)},
    "additionalProperties": True,
}


def install(target: Path) -> None:
    """Put this checkout where a Python finds it with its entry points."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(REPOSITORY)]
    subprocess.run(command, check=True)


class Engine:
    """A served model and the feed beside it."""

    def __init__(self, url: str) -> None:
        port = int(url.rpartition(":")[2])
        self.url = url
        self.feed = f"http://127.0.0.1:{port + 1000}"

    def chat(self, rid: str, **body: Any) -> httpx.Response:
        fields = {"model": "tiny", "rid": rid, "messages": [{"role": "user", "content": "say it"}], "temperature": 0}
        fields |= {"max_tokens": TOKENS, "ignore_eos": True, **body}
        return httpx.post(f"{self.url}/v1/chat/completions", json=fields, timeout=120)

    def text(self, rid: str, **body: Any) -> str:
        """What a stream says, put together."""
        lines = [
            line[6:] for line in self.chat(rid, stream=True, **body).text.splitlines() if line.startswith("data: {")
        ]
        deltas = [choice["delta"] for line in lines for choice in json.loads(line)["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)

    def score(self, rid: str, words: int, **body: Any) -> httpx.Response:
        """Log probabilities of a whole prompt."""
        fields = {"rid": rid, "text": "word " * words, "return_logprob": True, "logprob_start_len": 0}
        fields |= {"top_logprobs_num": 20, "sampling_params": {"max_new_tokens": 8, "temperature": 0}, **body}
        return httpx.post(f"{self.url}/generate", json=fields, timeout=120)

    def summary(self) -> dict[str, Any]:
        document: dict[str, Any] = httpx.get(f"{self.feed}/summary", timeout=30).json()
        return document

    def offences(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(f"{self.feed}/stacks", timeout=30).json()["offences"]
        return found


# Both event loops: they do the hooks in different places.
@pytest.fixture(scope="module", params=["overlap", "normal"])
def engine(
    request: pytest.FixtureRequest, sglang_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """SGLang with the plugin and our xgrammar backend, warmed up so that nothing is taken for warming up any more."""
    site = tmp_path_factory.mktemp("site")
    install(site)
    variables = {
        "STEPLANE_HARD_LIMIT_MS": str(HARD_LIMIT_MS),
        "STEPLANE_COMPILE_LIMIT_MS": str(COMPILE_LIMIT_MS),
        "PYTHONPATH": os.pathsep.join([str(site), str(SHIMS)]),
    }
    name = f"sglang-plugin-{request.param}"
    flags = ["--grammar-backend", "steplane-xgrammar"]
    with sglang(name, flags, overlap=request.param == "overlap", variables=variables) as url:
        running = Engine(url)
        for number in range(4):
            running.score(f"warm-{number}", 30)
        yield running


def run_together(*calls: Any) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_whoever_costs_is_named_and_plain_requests_are_not(engine: Engine) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    run_together(
        *[lambda number=number: engine.chat(f"plain-{number}", stream=True) for number in range(4)],
        lambda: engine.chat("structured", stream=True, response_format=schema),
        lambda: engine.chat("listed", stream=True, logprobs=True, top_logprobs=20),
        lambda: engine.chat("stopping", stream=True, stop=["@@never@@"]),
        lambda: engine.score("scored", 300),
    )
    summary = engine.summary()
    named = {offender["rid"]: offender["kinds"] for offender in summary["offenders"]}
    assert not [rid for rid in named if rid.startswith("plain")]
    assert {"grammar_fill", "grammar_accept"} <= set(named["structured"])
    assert "logprobs" in named["listed"]
    assert "stop" in named["stopping"]
    assert next(iter(named["scored"])) == "prompt_logprobs"
    assert summary["notes"] == []
    assert summary["lost"] == 0


def test_samples_are_known_by_the_id_of_their_request(engine: Engine) -> None:
    reply = engine.chat("sampled", n=3, stop=["@@never@@"]).json()
    assert len(reply["choices"]) == 3
    fields = {"rid": "several", "text": ["word", "words"], "sampling_params": {"n": 2, "stop": ["@@never@@"]}}
    httpx.post(f"{engine.url}/generate", json=fields, timeout=120).raise_for_status()
    named = [offender["rid"] for offender in engine.summary()["offenders"]]
    # One more of each may have filled the prefix cache.
    for prompt, samples in (("sampled_0_", 3), ("several_0_", 2), ("several_1_", 2)):
        assert samples <= sum(rid.startswith(prompt) for rid in named) <= samples + 1


def test_a_request_is_known_by_its_header_where_its_api_has_no_field_for_the_id(engine: Engine) -> None:
    message = {"role": "user", "content": "say it"}
    fields = {"model": "tiny", "max_tokens": 8, "messages": [message], "stop_sequences": ["@@never@@"]}
    headers = {"x-steplane-rid": "by-header"}
    httpx.post(f"{engine.url}/v1/messages", json=fields, headers=headers, timeout=120).raise_for_status()
    chat = {"model": "tiny", "rid": "by-body", "max_tokens": 8, "messages": [message], "stop": ["@@never@@"]}
    reply = httpx.post(f"{engine.url}/v1/chat/completions", json=chat, headers=headers, timeout=120)
    assert reply.json()["id"] == "by-body"
    named = {offender["rid"] for offender in engine.summary()["offenders"]}
    assert named >= {"by-header", "by-body"}


def test_the_hooks_of_requests_add_up_to_the_hooks_of_the_step(engine: Engine) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    steps: list[dict[str, Any]] = []
    with httpx.stream("GET", f"{engine.feed}/steps?from=newest", timeout=60) as stream:
        lines = (json.loads(line) for line in stream.iter_lines())
        next(lines)
        calls = [lambda n=n: engine.chat(f"l{n}", stream=True, logprobs=True, top_logprobs=20) for n in range(4)]
        calls.append(lambda: engine.chat("g", stream=True, response_format=schema))
        together = threading.Thread(target=run_together, args=calls)
        together.start()
        while len(steps) < 30:
            line = next(lines)
            if line["event"] == "step" and line["mode"] == "decode" and line["sequences"] >= 4:
                steps.append(line)
    together.join()
    for step in steps:
        own_us = sum(us for own in step["requests"].values() for us in own.values())
        assert own_us + step["shared_us"] == pytest.approx(step["hook_us"], rel=0.1)
        assert step["forward_us"] + step["hook_us"] <= step["step_us"] * 1.01


def test_the_hard_timer_ends_the_offender_and_its_batch_mates_get_what_they_would_have_got(engine: Engine) -> None:
    alone = engine.text("alone", max_tokens=120)
    texts: dict[str, str] = {}
    answer: dict[str, httpx.Response] = {}

    def mate(rid: str) -> None:
        texts[rid] = engine.text(rid, max_tokens=120)

    def offend() -> None:
        time.sleep(0.5)  # into the middle of its mates' streams
        answer["bomb"] = engine.score("bomb", 1500)

    # An id that begins with the offender's is nobody's but its own.
    run_together(*[lambda rid=rid: mate(rid) for rid in ("mate", "bomb-mate", "bomb2")], offend)
    assert answer["bomb"].status_code == 503
    assert "step_budget_exceeded: hooks of one step took" in answer["bomb"].text
    assert texts == dict.fromkeys(("mate", "bomb-mate", "bomb2"), alone)
    offence = next(offence for offence in engine.offences() if offence["limit"] == "hard")
    assert (offence["rid"], offence["kind"]) == ("bomb", "prompt_logprobs")
    assert any("logprob" in frame for frame in offence["stack"])


def test_a_grammar_that_compiles_too_long_is_failed_in_time_and_refused_after(engine: Engine) -> None:
    endless = {"type": "json_schema", "json_schema": {"name": "s", "schema": ENDLESS}}
    first = engine.chat("endless", response_format=endless)
    assert first.status_code == 503
    assert "step_budget_exceeded: its grammar was not compiled within 6000 ms" in first.text
    again = engine.chat("again", response_format=endless)
    assert "a short while ago" in again.text
    assert engine.chat("other", response_format={"type": "json_object"}, max_tokens=5).status_code == 200


def test_the_feed_can_end_a_request_by_its_id(engine: Engine) -> None:
    answer: dict[str, httpx.Response] = {}

    def ask() -> None:
        answer["long"] = engine.chat("long-1", max_tokens=3000)

    def end() -> None:
        while not engine.summary()["step_runs"]:
            pass
        httpx.post(f"{engine.feed}/abort", json={"rid": "long-1"}, timeout=30).raise_for_status()

    run_together(ask, end)
    assert answer["long"].status_code == 503
    assert "step_budget_exceeded" in answer["long"].text


def test_an_engine_whose_feed_is_killed_goes_on(engine: Engine) -> None:
    before = engine.summary()
    feed = child_feed(before["pid"])
    os.kill(feed, signal.SIGKILL)
    assert engine.chat("after", max_tokens=10).status_code == 200
    for _ in range(600):
        try:
            after = engine.summary()
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            break
    assert after["boot"] == before["boot"]
    assert after["next_seq"] > before["next_seq"]


def child_feed(pid: int) -> int:
    for task in os.listdir(f"/proc/{pid}/task"):
        for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
            if b"replica.feed" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError(f"process {pid} has no step feed")
