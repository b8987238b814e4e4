"""A real vLLM, measured and kept in time by the plugin that is installed beside it."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines.build import VLLM, build_environment, build_model
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
    vllm_with_plugin,
)

pytestmark = pytest.mark.timeout(1800)

HARD_LIMIT_MS = 1_000


class Engine(Measured):
    """vLLM, which adds eight digits to every id."""

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

    def named(self) -> dict[str, dict[str, float]]:
        """Offenders by the id that their client gave."""
        found = self.summary()["offenders"]
        return {offender["rid"].split("-")[1]: offender["kinds"] for offender in found}


@pytest.fixture(scope="module")
def engine(plugin_site: Path) -> Iterator[Engine]:
    """vLLM with the plugin, warmed up so that nothing is taken for warming up any more."""
    build_environment(VLLM)
    build_model(VLLM)
    variables = {
        "STEPLANE_HARD_LIMIT_MS": str(HARD_LIMIT_MS),
        "STEPLANE_COMPILE_LIMIT_MS": str(COMPILE_LIMIT_MS),
    }
    with vllm_with_plugin(plugin_site, variables) as (url, feed):
        served = Engine(url, feed)
        for number in range(4):
            served.score(f"warm{number}", 30)
        yield served


def test_whoever_costs_is_named_and_plain_requests_are_not(engine: Engine) -> None:
    schema = schema_format(SCHEMA)
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
    assert engine.summary()["notes"] == []


def test_the_hooks_of_requests_add_up_to_the_hooks_of_the_step(engine: Engine) -> None:
    calls = [lambda n=n: engine.chat(f"l{n}", logprobs=True, top_logprobs=20) for n in range(4)]
    calls.append(lambda: engine.chat("g", response_format=schema_format(SCHEMA)))
    assert_hooks_add_up(engine.steps_during(calls, 30, 4))


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
    offence = engine.offences()[0]
    assert (offence["rid"].split("-")[1], offence["kind"]) == ("bomb", "prompt_logprobs")


def test_the_feed_can_end_a_request_by_the_id_its_client_knows(engine: Engine) -> None:
    answer: dict[str, httpx.Response] = {}

    def ask() -> None:
        answer["long"] = engine.chat("long", max_tokens=3000)

    def end() -> None:
        engine.wait_for_step()
        engine.abort("chatcmpl-long")

    run_together(ask, end)
    choice = answer["long"].json()["choices"][0]
    assert choice["finish_reason"] == "abort"
    assert "step_budget_exceeded" in choice["stop_reason"]


def test_a_grammar_that_compiles_too_long_is_failed_in_time_and_others_do_not_wait_behind_it(engine: Engine) -> None:
    answer: dict[str, Any] = {}

    def endless() -> None:
        answer["endless"] = engine.chat("endless", response_format=schema_format(ENDLESS), max_tokens=8).json()

    def plain() -> None:
        answer["plain"] = engine.text("beside")

    alone = engine.text("alone")
    start = time.monotonic()
    run_together(endless, plain)
    # Stock vLLM would go on for minutes.
    assert time.monotonic() - start < 4 * COMPILE_LIMIT_MS / 1e3
    choice = answer["endless"]["choices"][0]
    assert choice["finish_reason"] == "abort"
    reason = f"step_budget_exceeded: its grammar was not compiled within {COMPILE_LIMIT_MS} ms"
    assert choice["stop_reason"].startswith(reason)
    assert answer["plain"] == alone
    offence = engine.offences()[0]
    assert (offence["rid"].split("-")[1], offence["limit"], offence["abort"]) == ("endless", "compile", True)
    other = {"type": "object", "properties": {"later": {"enum": ["a", "b"]}}, "required": ["later"]}
    reply = engine.chat("other", response_format=schema_format(other | {"additionalProperties": False}))
    assert reply.json()["choices"][0]["finish_reason"] in {"stop", "length"}


def test_an_engine_whose_feed_is_killed_goes_on(engine: Engine) -> None:
    before = engine.summary()
    os.kill(child_feed(before["pid"]), signal.SIGKILL)
    assert engine.text("after")
    assert assert_feed_comes_back(engine, before)["next_seq"] > before["next_seq"]


def test_when_the_engine_is_killed_its_readers_hear_it(engine: Engine) -> None:
    core = engine.summary()["pid"]
    events: list[str] = []
    with httpx.stream("GET", f"{engine.feed}/steps", timeout=60) as stream:
        for line in stream.iter_lines():
            document = json.loads(line)
            events.append(document["event"])
            if events == ["hello"]:
                os.kill(core, signal.SIGKILL)
            if document["event"] == "end":
                break
    assert document["reason"] == "engine_gone"
    assert "step" in events
