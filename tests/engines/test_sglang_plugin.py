"""A real SGLang, measured and kept in time by the plugin that is installed beside it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines.plugin import (
    COMPILE_LIMIT_MS,
    ENDLESS,
    SCHEMA,
    Measured,
    assert_feed_comes_back,
    assert_hooks_add_up,
    child_feed,
    run_together,
    schema_format,
    sglang_with_plugin,
)

pytestmark = pytest.mark.timeout(1800)

# Above what anything usual takes on a slow machine; a prompt of 1,500 tokens with its log probabilities takes seconds.
HARD_LIMIT_MS = 1_500
# Hooks of one request in one step; in that many steps it is an offence. Most masks of a counted `.` take over 20 ms.
STEP_BUDGET_US, SOFT_STEPS = 15_000, 10
TOKENS = 60
# Compiled in seconds; then each of its masks is filled from scratch.
DEAR_MASKS = "^.{1,255}$"


class Engine(Measured):
    """SGLang; its feed stands on its port + 1000."""

    def __init__(self, url: str) -> None:
        port = int(url.rpartition(":")[2])
        super().__init__(url, f"http://127.0.0.1:{port + 1000}")

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


VARIABLES = {
    "STEPLANE_HARD_LIMIT_MS": str(HARD_LIMIT_MS),
    "STEPLANE_COMPILE_LIMIT_MS": str(COMPILE_LIMIT_MS),
    "STEPLANE_STEP_BUDGET_US": str(STEP_BUDGET_US),
    "STEPLANE_SOFT_STEPS": str(SOFT_STEPS),
}


# Both event loops: they do the hooks in different places.
@pytest.fixture(scope="module", params=["overlap", "normal"])
def engine(request: pytest.FixtureRequest, sglang_installed: None, plugin_site: Path) -> Iterator[Engine]:
    """SGLang with the plugin and our xgrammar backend, warmed up so that nothing is taken for warming up any more."""
    overlap = request.param == "overlap"
    name = f"sglang-plugin-{request.param}"
    with sglang_with_plugin(name, plugin_site, "steplane-xgrammar", overlap=overlap, variables=VARIABLES) as (url, _):
        yield warmed_up(url)


@pytest.fixture(scope="module")
def on_llguidance(sglang_installed: None, plugin_site: Path) -> Iterator[tuple[Engine, subprocess.Popen[bytes]]]:
    """The same with our llguidance backend, and the process that leads it."""
    name, grammars = "sglang-plugin-llguidance", "steplane-llguidance"
    with sglang_with_plugin(name, plugin_site, grammars, overlap=True, variables=VARIABLES) as (url, process):
        yield warmed_up(url), process


def warmed_up(url: str) -> Engine:
    engine = Engine(url)
    for number in range(4):
        engine.score(f"warm-{number}", 30)
    return engine


def test_whoever_costs_is_named_and_plain_requests_are_not(engine: Engine) -> None:
    schema = schema_format(SCHEMA)
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
    calls = [lambda n=n: engine.chat(f"l{n}", stream=True, logprobs=True, top_logprobs=20) for n in range(4)]
    calls.append(lambda: engine.chat("g", stream=True, response_format=schema_format(SCHEMA)))
    assert_hooks_add_up(engine.steps_during(calls, 30, 4))


def dear_masks(engine: Engine) -> list[dict[str, Any]]:
    """What the engine's recorder says of one request whose masks are dear for xgrammar, beside plain ones."""
    answer: dict[str, httpx.Response] = {}
    run_together(
        lambda: answer.update(dear=engine.chat("dear-masks", regex=DEAR_MASKS)),
        *[lambda number=number: engine.chat(f"plain-beside-{number}", stream=True) for number in range(3)],
    )
    answer["dear"].raise_for_status()
    over = [offence for offence in engine.offences() if offence["limit"] == "soft"]
    assert not [offence for offence in over if offence["rid"].startswith("plain")]
    return [offence for offence in over if offence["rid"] == "dear-masks"]


def test_a_grammar_with_dear_masks_is_named_by_its_habit(engine: Engine) -> None:
    (offence, *_) = dear_masks(engine)
    assert (offence["kind"], offence["abort"]) == ("grammar_fill", False)
    assert offence["us"] > STEP_BUDGET_US


def test_the_same_grammar_is_cheap_on_llguidance(on_llguidance: tuple[Engine, subprocess.Popen[bytes]]) -> None:
    engine, _ = on_llguidance
    assert dear_masks(engine) == []
    kinds = next(found["kinds"] for found in engine.summary()["offenders"] if found["rid"] == "dear-masks")
    assert {"grammar_fill", "grammar_accept"} <= set(kinds)


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
    endless = schema_format(ENDLESS)
    first = engine.chat("endless", response_format=endless)
    assert first.status_code == 503
    assert f"step_budget_exceeded: its grammar was not compiled within {COMPILE_LIMIT_MS} ms" in first.text
    assert ("endless", "compile") in {(offence["rid"], offence["limit"]) for offence in engine.offences()}
    again = engine.chat("again", response_format=endless)
    assert "a short while ago" in again.text
    assert engine.chat("other", response_format={"type": "json_object"}, max_tokens=5).status_code == 200


def test_the_feed_can_end_a_request_by_its_id(engine: Engine) -> None:
    answer: dict[str, httpx.Response] = {}

    def ask() -> None:
        answer["long"] = engine.chat("long-1", max_tokens=3000)

    def end() -> None:
        engine.wait_for_step()
        engine.abort("long-1")

    run_together(ask, end)
    assert answer["long"].status_code == 503
    assert "step_budget_exceeded" in answer["long"].text


def test_an_engine_whose_feed_is_killed_goes_on(engine: Engine) -> None:
    before = engine.summary()
    os.kill(child_feed(before["pid"]), signal.SIGKILL)
    assert engine.chat("after", max_tokens=10).status_code == 200
    assert assert_feed_comes_back(engine, before)["next_seq"] > before["next_seq"]


def test_an_engine_whose_readers_are_killed_or_stop_reading_goes_on(engine: Engine) -> None:
    reader = ["curl", "--silent", "--no-buffer", "--output", "/dev/null", f"{engine.feed}/steps"]
    with subprocess.Popen(reader) as killed, subprocess.Popen(reader) as stopped:
        stopped.send_signal(signal.SIGSTOP)
        assert engine.chat("read", max_tokens=20).status_code == 200
        killed.kill()
        assert engine.chat("unread", max_tokens=20).status_code == 200
        stopped.kill()
    assert engine.summary()["lost"] == 0


def test_when_the_engine_is_killed_its_readers_get_the_rest_and_hear_it(
    on_llguidance: tuple[Engine, subprocess.Popen[bytes]],
) -> None:
    engine, _ = on_llguidance
    core = engine.summary()["pid"]
    events: list[str] = []
    with httpx.stream("GET", f"{engine.feed}/steps", timeout=60) as stream:
        for line in stream.iter_lines():
            document = json.loads(line)
            events.append(document["event"])
            if events == ["hello"]:
                os.kill(core, signal.SIGKILL)
            if document["event"] == "end":
                assert document["reason"] == "engine_gone"
                break
    assert "step" in events
    assert "lost" not in events
