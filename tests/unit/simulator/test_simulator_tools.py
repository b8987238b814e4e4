"""Tool calls: from tools to a grammar and from the grammar's text back to calls, however the text is cut."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.simulator.http.bodies import ChatBody
from replica.simulator.http.errors import RequestError
from replica.simulator.http.tools import CallStream, parse_calls, tools_schema

WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CLOCK = {"name": "clock", "parameters": None}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
calls = st.lists(
    st.fixed_dictionaries({"name": st.text(max_size=6), "parameters": st.dictionaries(st.text(max_size=5), values)}),
    min_size=1,
    max_size=3,
)


def body(tools: list[dict[str, Any]] | None, choice: Any, **more: Any) -> ChatBody:
    wrapped = None if tools is None else [{"type": "function", "function": t} for t in tools]
    return ChatBody.model_validate(
        {"messages": [{"role": "user", "content": "x"}], "tools": wrapped, "tool_choice": choice, **more}
    )


@given(calls, st.lists(st.integers(0, 400)), st.booleans())
def test_streamed_calls_are_those_of_the_whole_text(sent: list[dict[str, Any]], cuts: list[int], spaced: bool) -> None:
    text = json.dumps(sent, ensure_ascii=False, separators=(", ", ": ") if spaced else (",", ":"))
    borders = [0, *sorted(min(c, len(text)) for c in cuts), len(text)]
    stream = CallStream()
    got: dict[int, dict[str, Any]] = {}
    for start, end in pairwise(borders):
        for delta in stream.feed(text[start:end]):
            call = got.setdefault(delta.index, {"name": None, "arguments": ""})
            if delta.name is not None:
                assert call["name"] is None
                call["name"] = delta.name
            call["arguments"] += delta.arguments
    assert stream.calls == len(sent)
    whole = parse_calls(text)
    assert whole is not None
    assert [got[i] for i in range(len(sent))] == [c["function"] for c in whole]


@pytest.mark.parametrize("text", ["", "[", "plain words", "{}", "[1]", '[{"x": 1}]'])
def test_text_that_is_no_list_of_calls_gives_none(text: str) -> None:
    assert parse_calls(text) is None


def test_a_required_choice_admits_every_tool_and_a_named_one_that_tool() -> None:
    required = json.loads(tools_schema(body([WEATHER, CLOCK], "required")) or "")
    named = json.loads(tools_schema(body([WEATHER, CLOCK], {"type": "function", "function": {"name": "clock"}})) or "")
    assert [s["properties"]["name"]["enum"] for s in required["items"]["anyOf"]] == [["weather"], ["clock"]]
    assert named["items"]["properties"]["name"]["enum"] == ["clock"]
    assert required["minItems"] == named["minItems"] == 1
    assert "maxItems" not in required


def test_without_parallel_calls_there_is_exactly_one() -> None:
    schema = json.loads(tools_schema(body([CLOCK], "required", parallel_tool_calls=False)) or "")
    assert schema["maxItems"] == 1


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_other_choices_force_nothing(choice: str | None) -> None:
    assert tools_schema(body([WEATHER], choice)) is None


@pytest.mark.parametrize(
    ("tools", "choice", "message"),
    [
        (None, "required", "Tools cannot be empty if tool choice is set to required."),
        (
            None,
            {"type": "function", "function": {"name": "x"}},
            "Tools cannot be empty if tool choice is set to a specific tool.",
        ),
        ([CLOCK], {"type": "function", "function": {"name": "x"}}, "Tool 'x' not found in tools list."),
    ],
)
def test_a_choice_without_its_tool_is_refused(tools: Any, choice: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        tools_schema(body(tools, choice))
    assert caught.value.message == message


def test_definitions_of_tools_move_to_the_root_and_must_agree() -> None:
    def tool(name: str, definition: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "parameters": {"$ref": "#/$defs/d", "$defs": {"d": definition}}}

    same = body([tool("a", {"type": "object"}), tool("b", {"type": "object"})], "required")
    schema = json.loads(tools_schema(same) or "")
    assert schema["$defs"] == {"d": {"type": "object"}}
    with pytest.raises(RequestError, match="Tool definition 'd' has multiple schemas"):
        tools_schema(body([tool("a", {"type": "object"}), tool("b", {"type": "array"})], "required"))
