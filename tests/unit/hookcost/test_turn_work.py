"""Bodies made to hold the event loop up: no turn does more than its share of work, counted in calls, not in time.

A call, of Python or C, comes to 0.07 microseconds with all that stands around it: of the analysis of a regex, which
is the densest work, 14,000 take a millisecond.
"""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import orjson
import pytest

from gateway.hookcost import Classification, Classifier, llguidance, refusal, xgrammar
from gateway.hookcost.prices import CostModel
from tests.unit.hookcost.conftest import CHAT

MOST_CALLS = 24_000


def calls_of_longest_turn(classifier: Classifier, body: bytes) -> tuple[int, Classification]:
    calls = longest = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def counted(work: Callable[[], Any]) -> Any:
        nonlocal calls, longest
        calls = 0
        sys.setprofile(count)
        try:
            return work()
        finally:
            sys.setprofile(None)
            longest = max(longest, calls)

    found = counted(lambda: classifier.begin(CHAT, body))
    while not isinstance(found, Classification):
        try:
            counted(partial(next, found))
        except StopIteration as done:
            found = done.value
    return longest, found


def schema(**keywords: Any) -> dict[str, Any]:
    return {"guided_json": keywords}


def named(values: list[Any]) -> dict[str, Any]:
    return schema(type="object", properties={f"n{index}": value for index, value in enumerate(values)})


def tools(count: int) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    each = [{"type": "function", "function": {"name": f"f{i}", "parameters": parameters}} for i in range(count)]
    return {"tools": each, "tool_choice": "required"}


def tag(part: Callable[[int], dict[str, Any]], count: int) -> dict[str, Any]:
    return {"structural_tag": {"format": {"elements": [part(index) for index in range(count)]}}}


HOSTILE: dict[str, dict[str, Any]] = {
    "two thousand tools": tools(2000),
    "a tag of 1,400 schemas": tag(lambda i: {"json_schema": {"type": "object", "properties": {f"a{i}": {}}}}, 1400),
    "a tag of 1,400 regexes": tag(lambda i: {"type": "regex", "pattern": f"([a-z]{{1,{i + 1}}}x)+(a|b)*[A-Z]"}, 1400),
    "a tag of dense regexes": tag(lambda i: {"type": "regex", "pattern": f"(a|b){{1,{i + 1}}}" * 40}, 250),
    "a tag of 1,400 grammars": tag(lambda i: {"type": "grammar", "grammar": f'root ::= "a" [b-z]+ | "{i}" root'}, 1400),
    "a tag of dense grammars": tag(lambda i: {"type": "grammar", "grammar": f"root ::= {'a? ' * 400}b{i}"}, 60),
    "a tag of too many parts": tag(lambda i: {"type": "regex", "pattern": "a"}, 4000),
    "a list of values": schema(enum=[f"value {i}" for i in range(10_000)]),
    "a list of objects": schema(enum=[{"a": [i]} for i in range(10_000)]),
    "a union of 8,000": schema(anyOf=[{"type": ["string", "null"]}] * 8000),
    "a union of 1,000 objects": schema(oneOf=[{"type": "object", "properties": {f"k{i}": {}}} for i in range(1000)]),
    "10,000 places": schema(type="array", prefixItems=[{"type": "integer"}] * 10_000),
    "1,000 open names": schema(
        type="object", additionalProperties=True, properties={f"{'x' * 150}{i}": {} for i in range(1000)}
    ),
    "900 patterns": named([{"type": "string", "pattern": f"([a-z]{{1,{i + 1}}}x)+y{{2,9}}(a|b)"} for i in range(900)]),
    "dense patterns": named([{"type": "string", "pattern": f"(a|b){{1,{i + 1}}}" * 40} for i in range(250)]),
    "long lists of types": schema(anyOf=[{"type": ["string"] * 16, "pattern": f"a{i}"} for i in range(900)]),
    "a chain of references": schema(
        **{"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(2000)}, "$ref": "#/$defs/d0"}
    ),
    "3,000 stop expressions": {"stop_regex": [f"[a-z]{{1,{i + 1}}}x(a|b)+c" for i in range(3000)]},
    "dense stop expressions": {"stop_regex": [f"{'(a|b)' * 90}{i}" for i in range(300)]},
    "10,000 stop tokens": {"stop_token_ids": list(range(10_000))},
}


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE)
def test_no_turn_does_more_than_its_share(model: CostModel, backend: str, fields: dict[str, Any]) -> None:
    xgrammar.pattern_bill.cache_clear()
    llguidance.pattern_bill.cache_clear()
    refusal.judged.cache_clear()
    body = orjson.dumps({"messages": [], **fields})
    longest, _ = calls_of_longest_turn(Classifier(model, backends=((backend, None),)), body)
    assert longest <= MOST_CALLS


def test_more_stop_expressions_than_can_be_looked_at_are_refused(model: CostModel) -> None:
    body = orjson.dumps({"messages": [], **HOSTILE["3,000 stop expressions"]})
    found = Classifier(model).classify(CHAT, body)
    assert found.refusal is not None
    assert found.refusal.code == "nonlinear_stop_regex"
    assert "3000 expressions are more than can be looked at" in found.refusal.message


@pytest.mark.parametrize(("name", "bound"), [("a union of 8,000", "`anyOf`"), ("10,000 places", "`prefixItems`")])
def test_more_options_than_are_looked_at_are_heavy(model: CostModel, name: str, bound: str) -> None:
    found = Classifier(model).classify(CHAT, orjson.dumps({"messages": [], **HOSTILE[name]}))
    assert found.cost.heavy == f"{bound} with more than 1,000 schemas"
