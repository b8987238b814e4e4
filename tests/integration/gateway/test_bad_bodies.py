"""Bodies that are broken, hostile or odd, sent over real HTTP: each gets a clear answer, and nobody else notices."""

import gzip
import json
from typing import Any

import orjson
import pytest

from .harness import CHAT, COMPLETIONS, GENERATE, MESSAGES, PLAIN, RESPONSES, House, Message, error_of, house, request

NOT_JSON: dict[str, tuple[bytes, str]] = {
    "truncated": (b'{"model":"m","messages":[{"role":', "not valid JSON"),
    "an array": (b"[]", "an array"),
    "a string": (b'"text"', "a string"),
    "null": (b"null", "null"),
    "a number": (b"17", "a number"),
    "two objects": (b"{}{}", "not valid JSON"),
    "deep arrays": (b"[" * 100_000, "an array"),
    "deep objects": (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "levels"),
    "a NUL in a string": (b'{"model":"a\x00b"}', "control character"),
    "a NUL before": (b"\x00{}", "UTF-16"),
    "a NUL behind": (b'{"model":"m"}\x00', "not valid JSON"),
    "a lone surrogate": (b'{"model":"\\ud800"}', "surrogate"),
    "an encoded surrogate": (b'{"model":"\xed\xa0\x80"}', "UTF-8"),
    "invalid UTF-8": (b'{"model":"\xff"}', "UTF-8"),
    "gzip": (gzip.compress(b'{"model":"m"}'), "compressed"),
    "UTF-16": ('{"model":"m"}'.encode("utf-16"), "UTF-16"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "mark"),
    "NaN": (b'{"temperature":NaN}', "not valid JSON"),
    "a form": (b"model=m&messages=hi", "not valid JSON"),
}

WRONG: list[tuple[str, object]] = [
    ("model", 5),
    ("stream", "perhaps"),
    ("n", "many"),
    ("n", 1.5),
    ("n", "9" * 5000),
    ("best_of", {}),
    ("beam_width", []),
    ("max_tokens", "lots"),
    ("max_completion_tokens", {}),
    ("max_new_tokens", []),
    ("max_output_tokens", "x"),
    ("top_k", "all"),
    ("logprobs", "perhaps"),
    ("top_logprobs", "x"),
    ("top_logprobs_num", {}),
    ("return_logprob", "perhaps"),
    ("logprob_start_len", "x"),
    ("token_ids_logprob", "x"),
    ("logprob_token_ids", "5"),
    ("prompt_logprobs", {}),
    ("echo", "perhaps"),
    ("stop", 5),
    ("stop", [1]),
    ("stop_sequences", {}),
    ("stop_strs", 5),
    ("stop_token_ids", ["x"]),
    ("stop_regex", [{}]),
    ("stop_regex_strs", 5),
    ("logit_bias", []),
    ("logit_bias", {"x": 1}),
    ("allowed_token_ids", {}),
    ("bad_words", 5),
    ("frequency_penalty", "x"),
    ("presence_penalty", []),
    ("repetition_penalty", {}),
    ("min_tokens", "x"),
    ("min_new_tokens", {}),
    ("custom_logit_processor", 5),
    ("logits_processors", {}),
    ("return_hidden_states", "first"),
    ("response_format", "json"),
    ("response_format", {"type": "json_schema"}),
    ("output_format", 5),
    ("json_schema", "{"),
    ("regex", 5),
    ("ebnf", {}),
    ("structural_tag", 5),
    ("structured_outputs", "x"),
    ("structured_outputs", {"choice": [5]}),
    ("guided_json", 5),
    ("guided_regex", 5),
    ("guided_choice", "yes"),
    ("guided_grammar", []),
    ("guided_json_object", "perhaps"),
    ("tools", {}),
    ("tools", [None]),
    ("rid", 5),
    ("rid", [5]),
]
"""Every recognised field with what no engine takes for it."""

WRONG_BY_PATH: list[tuple[str, dict[str, object], str]] = [
    (GENERATE, {"sampling_params": 5}, "sampling_params"),
    (GENERATE, {"sampling_params": [5]}, "sampling_params[0]"),
    (GENERATE, {"sampling_params": [{}, {"n": []}]}, "sampling_params[1].n"),
    (RESPONSES, {"text": "x"}, "text"),
    (RESPONSES, {"text": {"format": 5}}, "text.format"),
    (RESPONSES, {"include": 5}, "include"),
    (MESSAGES, {"output_config": 5}, "output_config"),
    ("/vertex_generate", {"instances": 5}, "instances"),
    (CHAT, {"tools": [{"function": {"name": "f"}}], "tool_choice": 5}, "tool_choice"),
]

HARMLESS: list[tuple[str, dict[str, object]]] = [
    (CHAT, {}),
    (CHAT, {"messages": 5}),
    (CHAT, {"messages": [5, None, [], {"content": 5}, {"content": [None, {"text": 5}]}]}),
    (CHAT, {"messages": [], "temperature": "hot", "seed": {}, "user": 5, "unknown": {"regex": "(a+)+"}}),
    (CHAT, {"messages": "\0\x1b\u2028\ufeff\U0010ffff"}),
    (COMPLETIONS, {"prompt": {}}),
    (COMPLETIONS, {"prompt": [None, 5, "x", [{}]]}),
    (GENERATE, {"text": 5, "input_ids": "x"}),
    (RESPONSES, {"input": 5, "instructions": {}}),
    (MESSAGES, {"messages": {}, "system": 5}),
]
"""Wrong in fields that cost the step thread nothing: the engine's own validation says it best."""


async def ask_beside_a_plain_request(running: House, path: str, body: object) -> Message:
    """The answer to a bad body, while a plain request on another connection is answered as ever."""
    plain, bad = await running.client(), await running.client()
    await bad.send(request(path, body))
    await plain.send(request(CHAT, PLAIN[CHAT]))
    assert (await plain.response()).status == 200
    answer = await bad.response()
    if answer.status == 400:  # and the connection is as good as before
        await bad.send(request(CHAT, PLAIN[CHAT]))
        assert (await bad.response()).status == 200
    return answer


@pytest.mark.parametrize("path", PLAIN)
async def test_a_body_that_is_no_json_object_is_answered_with_the_reason(path: str) -> None:
    async with house() as running:
        for name, (body, says) in NOT_JSON.items():
            answer = await ask_beside_a_plain_request(running, path, body)
            assert answer.status == 400, name
            assert error_of(answer)["code"] == "invalid_json"
            assert says in error_of(answer)["message"], name
        assert all(message.start.startswith(f"POST {CHAT}".encode()) for message in running.asked)
        assert await running.metric("steplane_refused_requests_total", code="invalid_json") == len(NOT_JSON)


@pytest.mark.parametrize("lines", [(), ("content-length: 0",), ("transfer-encoding: chunked",)])
async def test_an_empty_body_is_answered_with_the_reason(lines: tuple[str, ...]) -> None:
    async with house() as running:
        client = await running.client()
        end = b"0\r\n\r\n" if "chunked" in "".join(lines) else b""
        answer = await client.ask(request(CHAT, None, *lines) + end)
        assert answer.status == 400
        assert "empty" in error_of(answer)["message"]
        assert not running.asked


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
async def test_a_recognised_field_of_a_wrong_type_is_refused_and_named(path: str) -> None:
    async with house() as running:
        for field, value in WRONG:
            answer = await ask_beside_a_plain_request(running, path, {**PLAIN[path], field: value})
            assert answer.status == 400, field
            error = error_of(answer)
            assert error["code"] == "invalid_value"
            assert error["param"].startswith(field)
            assert field in error["message"]


async def test_each_dialect_names_its_own_fields() -> None:
    async with house() as running:
        for path, fields, param in WRONG_BY_PATH:
            answer = await ask_beside_a_plain_request(running, path, {**PLAIN.get(path, {}), **fields})
            assert (answer.status, error_of(answer)["param"]) == (400, param)


@pytest.mark.parametrize(("path", "body"), HARMLESS)
async def test_what_can_do_no_harm_is_passed_on_to_the_engine_s_own_validation(path: str, body: dict[str, Any]) -> None:
    async with house() as running:
        answer = await ask_beside_a_plain_request(running, path, body)
        assert answer.status == 200
        spelled = json.dumps(body).encode()
        assert any(message.body.startswith(spelled[:-1]) for message in running.asked)


@pytest.mark.parametrize(
    ("begin", "end", "pool"),
    [
        (b'{"a":', b"}", b"quarantine"),
        (b'{"messages":[],"regex":', b"}", b"quarantine"),
        (b'{"messages":', b"}", b"interactive"),  # prompt, which costs the step thread nothing however odd it is
    ],
)
@pytest.mark.parametrize(("inner", "close"), [(b"[", b"]"), (b'{"a":', b"}")])
async def test_a_large_body_nested_100_000_deep_holds_nobody_up(
    begin: bytes, end: bytes, pool: bytes, inner: bytes, close: bytes
) -> None:
    """Too large to be parsed whole; the engine's parser refuses it, in the pool where it can do no harm."""
    body = begin + inner * 200_000 + b"1" + close * 200_000 + end
    async with house() as running:
        answer = await ask_beside_a_plain_request(running, CHAT, body)
        assert answer.status == 400 or answer.header(b"x-steplane-pool") == pool
        cut = await ask_beside_a_plain_request(running, CHAT, body[: len(body) // 2])
        assert (cut.status, error_of(cut)["code"]) == (400, "invalid_json")


async def test_duplicate_keys_are_read_as_the_engine_reads_them() -> None:
    async with house() as running:
        assert (await running.ask(CHAT, b'{"messages":[],"n":"many","n":1}')).status == 200
        answer = await running.ask(CHAT, b'{"messages":[],"n":1,"n":"many"}')
        assert (answer.status, error_of(answer)["param"]) == (400, "n")


async def test_a_number_or_a_grammar_beyond_reason_is_refused_or_kept_apart() -> None:
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"items": deep}
    bodies: list[dict[str, Any]] = [
        {"n": 10**15},
        {"n": "1e308"},
        {"top_logprobs": 10**12, "logprobs": True},
        {"max_tokens": 1e300},
        {"logit_bias": {"9" * 4000: 1}},
        {"logit_bias": {str(token): 1 for token in range(50_000)}},
        {"stop": ["x" * 100] * 5000},
        {"json_schema": orjson.dumps({"enum": [f"v{index}" for index in range(20_000)]}).decode()},
        {"guided_json": deep},
        {"regex": "(" * 5000},
        {"regex": "(a{1,999}){1,999}"},
        {"ebnf": "root ::= " + "a " * 20_000},
        {"ebnf": "::=\n" * 5000},
        {"stop_regex": "(a+)+$"},
        {"tools": [{"type": "function", "function": {"name": f"f{index}"}} for index in range(5000)]},
        {"prompt": ["x"] * 100_000},
    ]
    async with house() as running:
        for body in bodies:
            path = COMPLETIONS if "prompt" in body else CHAT
            answer = await ask_beside_a_plain_request(running, path, {**PLAIN[path], **body})
            assert answer.status in (200, 400), list(body)
            if answer.status == 400:
                assert error_of(answer)["param"]


async def test_a_gzip_body_is_refused_even_when_it_says_so() -> None:
    async with house() as running:
        body = gzip.compress(orjson.dumps(PLAIN[CHAT]))
        answer = await running.ask(CHAT, body, "content-encoding: gzip")
        assert answer.status == 400
        assert "compressed" in error_of(answer)["message"]


async def test_pipelined_bad_and_good_requests_are_answered_in_order() -> None:
    async with house() as running:
        client = await running.client()
        good, bad = request(CHAT, PLAIN[CHAT]), request(CHAT, b"{")
        await client.send(good + bad + bad + good)
        assert [(await client.response()).status for _ in range(4)] == [200, 400, 400, 200]
