"""Bodies made to hold the event loop up: no turn does more than its share of work, counted, not timed.

Counted are calls, of Python or C, each of which comes to 0.07 microseconds with all that stands around it (of the
analysis of a regex, which is the densest work, 14,000 take a millisecond), and what goes through the JSON parser.
"""

import re
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import orjson
import pytest

from gateway.hookcost import Classification, Classifier, llguidance, refusal, xgrammar
from gateway.hookcost.prices import CostModel
from gateway.hookcost.regex import read_regex
from gateway.hookcost.turns import at_once
from loadtest.hostile_bodies import HOSTILE

MOST_CALLS = 24_000
MOST_PARSED = 20_000
"""Objects and arrays: of the dearest to parse, small ones, so many take a millisecond."""
MOST_PARSED_BYTES = 256 * 1024
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


class Meter:
    """Counts the work of turns, and keeps the most of each kind that one turn did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.parsed = self.parsed_bytes = 0
        self.most_calls = self.most_parsed = self.most_parsed_bytes = self.turns = 0
        loads = orjson.loads

        def counted_loads(text: Any) -> Any:
            spelled = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
            marks = _STRING.sub(b"", spelled)
            self.parsed += marks.count(b"{") + marks.count(b"[")
            self.parsed_bytes += len(spelled)
            return loads(text)

        monkeypatch.setattr(orjson, "loads", counted_loads)

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.calls += event in ("call", "c_call")

    def turn(self, work: Callable[[], Any]) -> Any:
        self.calls = self.parsed = self.parsed_bytes = 0
        sys.setprofile(self._count)
        try:
            return work()
        finally:
            sys.setprofile(None)
            self.turns += 1
            self.most_calls = max(self.most_calls, self.calls)
            self.most_parsed = max(self.most_parsed, self.parsed)
            self.most_parsed_bytes = max(self.most_parsed_bytes, self.parsed_bytes)

    def classify(self, classifier: Classifier, path: str, body: bytes) -> Classification:
        found = self.turn(lambda: classifier.begin(path, body))
        while not isinstance(found, Classification):
            try:
                self.turn(partial(next, found))
            except StopIteration as done:
                found = done.value
        return found


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    return Meter(monkeypatch)


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_turn_does_more_than_its_share(model: CostModel, meter: Meter, backend: str, name: str) -> None:
    path, make = HOSTILE[name]
    body = make()
    if backend == "llguidance" and b'"guided_json"' not in body:
        return  # only schemas are read in two ways
    xgrammar.pattern_bill.cache_clear()
    llguidance.pattern_bill.cache_clear()
    refusal.judged.cache_clear()
    meter.classify(Classifier(model, backends=((backend, None),)), path, body)
    assert meter.most_calls <= MOST_CALLS
    assert meter.most_parsed <= MOST_PARSED
    assert meter.most_parsed_bytes <= MOST_PARSED_BYTES


def hostile(model: CostModel, name: str) -> Classification:
    path, make = HOSTILE[name]
    begun = Classifier(model).begin(path, make())
    return begun if isinstance(begun, Classification) else at_once(begun)


def test_more_stop_expressions_than_can_be_looked_at_are_refused(model: CostModel) -> None:
    found = hostile(model, "3,000 stop expressions")
    assert found.refusal is not None
    assert found.refusal.code == "nonlinear_stop_regex"
    assert "3000 expressions are more than can be looked at" in found.refusal.message


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("a union of 8,000", "`anyOf` with more than 1,000 schemas"),
        ("10,000 places", "`prefixItems` with more than 1,000 schemas"),
        ("patterns of names", "an object of more than 1,000 patterns of properties"),
        ("required names", "an object of more than 1,000 required"),
        ("a schema as text, of empty lists", "`guided_json` is a grammar of more than 40,000 parts"),
        ("empty lists under a hundred others", "request parameters of more than 20,000 objects and arrays"),
    ],
)
def test_more_than_is_looked_at_is_heavy(model: CostModel, name: str, bound: str) -> None:
    assert hostile(model, name).cost.heavy == bound


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("10,000 stop tokens as text", "`stop_token_ids` must be all of one plain kind, beyond 1,000 entries"),
        ("10,000 biases as text", "but is an object of 8,000 entries"),
        ("a grammar of open brackets", "`[` without `]` in rule 'root'"),
        ("brackets", "1,024 levels"),
    ],
)
def test_what_no_client_means_is_refused(model: CostModel, name: str, says: str) -> None:
    found = hostile(model, name)
    assert found.refusal is not None
    assert says in found.refusal.message


@pytest.mark.parametrize("spaces", [10, 1_000, 10_000])
def test_spaces_in_a_count_take_no_more_than_their_length(spaces: int) -> None:
    # Backtracking would try all ways to split them: 10,000 would take longer than anyone waits.
    assert read_regex(f"a{{{' ' * spaces}x").literals == spaces + 1
