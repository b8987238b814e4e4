"""Recorded decisions, from a running gateway's file to what other rules would do with them."""

import json
from pathlib import Path

from gateway.control.assembly import build_router
from gateway.control.config import parse_config
from gateway.control.replay import replay
from gateway.control.traffic import recorded
from tests.integration.gateway.harness import CHAT, PLAIN

from .harness import site

STRUCTURED = PLAIN[CHAT] | {
    "response_format": {"type": "json_object"},
    "messages": [{"role": "user", "content": "pssst"}],
}
OTHER = """
default_pool: chat
pools:
  chat: {replicas: [http://h:1]}
  grammar: {replicas: [http://h:2]}
rules:
  - {name: structured, when: {grammar: any}, pool: grammar}
"""


async def test_what_was_decided_is_written_without_words_of_clients_and_can_be_decided_again(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"]}, record_decisions={"path": "traffic.ndjson"}) as running:
        for body in (PLAIN[CHAT], STRUCTURED, STRUCTURED):
            assert (await running.ask(CHAT, body, "authorization: Bearer s3cret-key")).status == 200

    text = (tmp_path / "traffic.ndjson").read_text()
    decisions = [recorded(line) for line in text.splitlines()]
    assert [(each.pool, each.rule) for each in decisions] == [("chat", "default")] * 3
    assert "pssst" not in text
    assert "s3cret" not in text
    assert json.loads(text.splitlines()[1])["features"]["grammar"] == "json_object"

    found = replay(decisions, build_router(parse_config(OTHER), available=True))
    assert (found.requests, found.moved) == (3, 2)
    assert found.moves["chat", "grammar"].rules == {("default", "structured"): 2}


async def test_a_file_that_grows_too_large_is_put_aside(tmp_path: Path) -> None:
    record = {"path": "traffic.ndjson", "max_bytes": 1}
    async with site(tmp_path, {"chat": ["a"]}, record_decisions=record) as running:
        recorder = running.gateway._recorder
        assert recorder is not None
        for _ in range(2):
            await running.ask(CHAT, PLAIN[CHAT])
            await recorder._flush()

    assert len((tmp_path / "traffic.ndjson").read_text().splitlines()) == 1
    assert len((tmp_path / "traffic.ndjson.1").read_text().splitlines()) == 1
