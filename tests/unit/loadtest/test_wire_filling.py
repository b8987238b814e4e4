"""What fills a cost book speaks the language of step feeds, and of engines."""

import json
from collections.abc import Iterator

import pytest

from gateway.feed.records import Hello, Rollup, parse_line
from loadtest.wire import filling
from loadtest.wire.filling import Filler, FillingError


async def test_its_feed_says_hello_first() -> None:
    records = Filler()._records()
    assert isinstance(parse_line(json.dumps(await anext(records)).encode()), Hello)
    await records.aclose()


def test_its_rollup_names_every_request() -> None:
    record = parse_line(json.dumps(filling._rollup(["a", "b"])).encode())
    assert isinstance(record, Rollup)
    assert {rid: share.steps for rid, share in record.requests.items()} == {"a": 1, "b": 1}


@pytest.fixture
def filler() -> Iterator[Filler]:
    with Filler() as filler:
        yield filler


def test_a_gateway_that_does_not_read_its_feed_is_told_of(filler: Filler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "_READ_WITHIN_S", 0.01)
    with pytest.raises(FillingError, match="does not read the step feed"):
        filler.fill(filler.replica_port, 1)
    assert filler.replica_port != filler.feed_port
