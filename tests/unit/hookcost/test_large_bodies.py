"""Bodies too large to parse at once: read in turns, with the same answer, and no turn longer than the others allow."""

import gc
import time
from typing import Any

import orjson
import pytest

from gateway.hookcost import Classification, Classifier, Grammar
from gateway.hookcost.body import INLINE_BYTES, QUICK_BYTES
from tests.unit.hookcost.conftest import CHAT

PADDING = "x" * (2 * INLINE_BYTES)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def in_turns(classifier: Classifier, path: str, body: bytes) -> tuple[Classification, int]:
    turns = classifier.begin(path, body)
    assert not isinstance(turns, Classification)
    count = 0
    while True:
        try:
            next(turns)
            count += 1
        except StopIteration as done:
            return done.value, count


def longest_turn(classifier: Classifier, body: bytes) -> float:
    """CPU seconds of the longest turn but the last."""
    turns = classifier.begin(CHAT, body)
    assert not isinstance(turns, Classification)
    longest, before = 0.0, time.thread_time()
    for _ in turns:
        longest = max(longest, time.thread_time() - before)
        before = time.thread_time()
    return longest


BODIES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": [{"role": "user", "content": PADDING}], "model": "m", "n": 2}),
    (
        CHAT,
        {"messages": [{"role": "user", "content": PADDING + '"}]{[\\'}], "regex": "a+"},
    ),
    (
        CHAT,
        {
            "regex": "a+",
            "messages": [{"role": "user", "content": [{"type": "text", "text": PADDING}]}],
        },
    ),
    (
        CHAT,
        {
            "messages": [],
            "response_format": {"type": "json_schema", "schema": SCHEMA},
            "user": PADDING,
        },
    ),
    (
        CHAT,
        {
            "messages": [{"content": PADDING}],
            "stop": ["a"],
            "logprobs": True,
            "top_logprobs": 3,
            "rid": "r",
        },
    ),
    (
        CHAT,
        {
            "messages": [{"content": PADDING}],
            "tools": [{"function": {"name": "f", "parameters": SCHEMA}}],
        },
    ),
    (
        "/v1/completions",
        {
            "prompt": ["a" * INLINE_BYTES, "b" * INLINE_BYTES],
            "n": 3,
            "ebnf": 'root ::= "a"',
        },
    ),
    (
        CHAT,
        {
            "messages": [{"content": PADDING}],
            "guided_json": orjson.dumps(
                {
                    "type": "object",
                    "properties": {f"a property with a long name {i}": {"enum": [i]} for i in range(600)},
                }
            ).decode(),
        },
    ),
    ("/v1/completions", {"prompt": list(range(INLINE_BYTES)), "n": 3}),
    ("/v1/completions", {"prompt": [list(range(INLINE_BYTES)), [1]], "n": 3}),
    (
        "/v1/responses",
        {
            "input": PADDING,
            "text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}},
        },
    ),
    ("/v1/messages", {"system": PADDING, "messages": [], "stop_sequences": ["x"]}),
    ("/generate", {"text": PADDING, "sampling_params": {"regex": "a+", "n": 2}}),
    ("/generate", {"text": [PADDING, "x"], "return_logprob": True}),
]


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_in_turns_the_same_is_seen_as_at_once(classifier: Classifier, path: str, body: dict[str, Any]) -> None:
    raw = orjson.dumps(body)
    at_once, (apart, _) = (
        classifier.classify(path, raw),
        in_turns(classifier, path, raw),
    )
    assert apart.refusal == at_once.refusal
    assert apart.signature == at_once.signature
    assert apart.grammar_key == at_once.grammar_key
    assert apart.cost.compile_ms == at_once.cost.compile_ms
    for name in (
        "grammar",
        "n",
        "batch",
        "stop",
        "tools",
        "top_logprobs",
        "rid_given",
        "body_bytes",
    ):
        assert getattr(apart.features, name) == getattr(at_once.features, name), name
    assert apart.features.prompt_bytes == pytest.approx(at_once.features.prompt_bytes, rel=0.05, abs=64)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"1," * INLINE_BYTES + b"1]",
        b'{"messages": "' + b"x" * (2 * INLINE_BYTES),
        b'{"messages": [' + b"[" * (2 * INLINE_BYTES),
        b'{"messages": "' + b"x" * (2 * INLINE_BYTES) + b'" "model": "m"}',
        b'{"messages": "' + b"x" * (2 * INLINE_BYTES) + b'", "model": nul}',
        b'{"messages": "' + b"x" * (2 * INLINE_BYTES) + b'", model: 1}',
        b"{" + b" " * (2 * INLINE_BYTES),
        b'{"a": ' + b" " * (2 * INLINE_BYTES) + b"}",
        b"\x1f\x8b" + bytes(2 * INLINE_BYTES),
    ],
)
def test_a_large_broken_body_is_refused(classifier: Classifier, body: bytes) -> None:
    seen, _ = in_turns(classifier, CHAT, body)
    assert seen.refusal is not None
    assert seen.refusal.status == 400


def test_tools_hidden_in_the_messages_of_a_large_body_make_it_heavy(
    classifier: Classifier,
) -> None:
    tools = [{"function": {"name": "f", "parameters": SCHEMA, "strict": True}}]
    for key in (b'"tools"', rb'"\u0074ools"'):
        body = orjson.dumps({"messages": [{"role": "system", "content": PADDING, "tools": tools}]})
        seen, _ = in_turns(classifier, CHAT, body.replace(b'"tools"', key))
        assert seen.cost.heavy is not None
    quoted = orjson.dumps(
        {
            "messages": [
                {"role": "user", "content": PADDING + '"tools": 1'},
                {"content": "tools"},
            ]
        }
    )
    assert in_turns(classifier, CHAT, quoted)[0].cost.heavy is None


@pytest.mark.parametrize("pieces", [b"[]," * 20_000, b"{}," * 20_000, b"{},[]," * 10_000])
def test_a_middling_body_of_many_small_values_is_read_in_turns(classifier: Classifier, pieces: bytes) -> None:
    body = b'{"model": "m", "user": [' + pieces + b"0]}"
    assert QUICK_BYTES < len(body) <= INLINE_BYTES
    seen, count = in_turns(classifier, CHAT, body)
    assert seen.refusal is None
    assert count > 1


def test_parameters_beyond_the_bound_make_a_body_heavy(classifier: Classifier) -> None:
    body = orjson.dumps({"messages": [], "guided_json": {"enum": ["x" * 100] * 5000}})
    seen, _ = in_turns(classifier, CHAT, body)
    assert seen.refusal is None
    assert "256 KiB" in str(seen.cost.heavy)


def test_images_cost_many_short_turns_and_hide_nothing(classifier: Classifier) -> None:
    image = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 750_000},
    }
    body = orjson.dumps(
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "what?"}, *[image] * 5],
                }
            ],
            "regex": "a+",
        }
    )
    assert len(body) > 40_000_000
    gc.collect()
    gc.disable()  # a full collection of what the tests hold is no part of a turn
    try:
        # What else the machine does can make a turn longer, but not shorter.
        longest = min(longest_turn(classifier, body) for _ in range(3))
        started = time.thread_time()
        orjson.loads(body)
        at_once = time.thread_time() - started
    finally:
        gc.enable()
    seen, _ = in_turns(classifier, CHAT, body)
    assert seen.features.grammar is Grammar.regex
    assert seen.features.prompt_bytes < 200
    # What matters is that no turn is as long as the parse would have been: a ratio within one run, free of the machine.
    assert longest < at_once / 3


@pytest.mark.parametrize(
    "content",
    ['\\"' * 200_000, "{[" * 200_000, '","' * 100_000, "\\\\" * 200_000 + "x"],
    ids=["quotes", "brackets", "commas", "backslashes"],
)
def test_text_full_of_marks_is_skipped_as_text(classifier: Classifier, content: str) -> None:
    body = orjson.dumps({"messages": [{"role": "user", "content": content}], "guided_regex": "a+"})
    seen, turns = in_turns(classifier, CHAT, body)
    assert seen.features.grammar is Grammar.regex
    assert seen.refusal is None
    assert turns > 0
