"""Single fields of a body changed, and every other byte as it came."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.hookcost import Api, classify
from gateway.hookcost.edits import BodyEdits, Cap
from gateway.hookcost.objecttext import UNREADABLE, changed, fields_of
from gateway.hookcost.spellings import spellings

CAPS = (Cap("max_tokens", 100), Cap("top_logprobs", 5), Cap("prompt_logprobs", 1), Cap("n", 2))
STRIPS = ("logit_bias", "stop", "custom_logit_processor")


@pytest.mark.parametrize(
    ("api", "body", "edited", "changes"),
    [
        # limits, in every spelling
        (Api.chat, '{"max_tokens":101}', '{"max_tokens":100}', "max_tokens=100"),
        (Api.chat, '{"max_tokens":100}', None, ""),
        (
            Api.chat,
            '{"max_completion_tokens": 101 , "a":1}',
            '{"max_completion_tokens": 100 , "a":1}',
            "max_completion_tokens=100",
        ),
        (Api.responses, '{"max_output_tokens":9e9}', '{"max_output_tokens":100}', "max_output_tokens=100"),
        (Api.chat, '{"max_tokens":"101"}', '{"max_tokens":100}', "max_tokens=100"),
        (Api.chat, '{"max_tokens":"99"}', None, ""),
        (Api.chat, '{"max_tokens":null}', None, ""),
        (Api.chat, '{"max\\u005ftokens":101}', '{"max\\u005ftokens":100}', "max_tokens=100"),
        (Api.chat, '{"top_logprobs":-1}', '{"top_logprobs":5}', "top_logprobs=5"),
        (Api.completions, '{"logprobs":20}', '{"logprobs":5}', "logprobs=5"),
        (Api.chat, '{"logprobs":true,"top_logprobs":6}', '{"logprobs":true,"top_logprobs":5}', "top_logprobs=5"),
        (Api.generate, '{"top_logprobs_num":[1,9,-1]}', '{"top_logprobs_num":[1,5,5]}', "top_logprobs_num=5"),
        (Api.chat, '{"prompt_logprobs":50}', '{"prompt_logprobs":1}', "prompt_logprobs=1"),
        (Api.chat, '{"n":4,"best_of":5}', '{"n":2,"best_of":2}', "n=2, best_of=2"),
        # what holds further parameters
        (
            Api.generate,
            '{"text":"max_tokens","sampling_params":{"max_new_tokens":101,"n":1}}',
            '{"text":"max_tokens","sampling_params":{"max_new_tokens":100,"n":1}}',
            "max_new_tokens=100",
        ),
        (
            Api.generate,
            '{"sampling_params":[{"max_new_tokens":101},{},{"n":9}]}',
            '{"sampling_params":[{"max_new_tokens":100},{},{"n":2}]}',
            "max_new_tokens=100, n=2",
        ),
        (Api.chat, '{"extra_body":{"max_tokens":101}}', '{"extra_body":{"max_tokens":100}}', "max_tokens=100"),
        (
            Api.generate,
            '{"instances":[],"parameters":{"sampling_params":{"n":3}}}',
            '{"instances":[],"parameters":{"sampling_params":{"n":2}}}',
            "n=2",
        ),
        (Api.chat, '{"messages":[{"max_tokens":101}],"metadata":{"n":9}}', None, ""),
        # taken out, with one comma
        (Api.chat, '{"logit_bias":{"1":2}}', "{}", "logit_bias=removed"),
        (Api.chat, '{ "logit_bias":{}, "a": 1 }', '{ "a": 1 }', "logit_bias=removed"),
        (Api.chat, '{"a": 1 , "logit_bias":{} }', '{"a": 1 }', "logit_bias=removed"),
        (Api.chat, '{"a":1, "stop":["x"],  "b":2}', '{"a":1,  "b":2}', "stop=removed"),
        (Api.chat, '{"stop":1,"logit_bias":2,"a":3}', '{"a":3}', "stop=removed, logit_bias=removed"),
        (Api.chat, '{"a":3,"stop":1,"logit_bias":2}', '{"a":3}', "stop=removed, logit_bias=removed"),
        (Api.messages, '{"stop_sequences":["x"],"a":"}"}', '{"a":"}"}', "stop_sequences=removed"),
        (Api.chat, '{"logits_processors":[1],"logit_bias":null}', '{"logit_bias":null}', "logits_processors=removed"),
        # a name that stands twice: the last one counts, so the change goes last
        (Api.chat, '{"n":1,"a":2,"n":9}', '{"n":1,"a":2,"n":9,"n":2}', "n=2"),
        (Api.chat, '{"n":9,"n":1}', None, ""),
        (Api.chat, '{"stop":"a","stop":"b"}', '{"stop":"a","stop":"b","stop":null}', "stop=removed"),
        (Api.chat, '{"a":1,"a":1,"n":9}', '{"a":1,"a":1,"n":9,"n":2}', "n=2"),
        # nothing to do
        (Api.chat, "{}", None, ""),
        (Api.chat, "[]", None, ""),
        (Api.chat, '{"a":', None, ""),
        (Api.chat, '{"n":"many"}', None, ""),
        (Api.chat, '{"a":"\\"n\\":9,"}', None, ""),
    ],
)
def test_only_what_is_to_be_changed_is_changed(api: Api, body: str, edited: str | None, changes: str) -> None:
    found = BodyEdits(CAPS, STRIPS).apply(api, "sglang", body.encode())

    assert (None if found is None else found.body.decode()) == edited
    assert ", ".join(found.changes if found else ()) == changes


@pytest.mark.parametrize(
    ("api", "engine", "body", "edited"),
    [
        (Api.chat, "sglang", '{"messages":[]}', '{"messages":[],"max_tokens":7}'),
        (Api.chat, "sglang", "{ }", '{ "max_tokens":7}'),
        (Api.chat, "sglang", '{"max_tokens":null,"a":1}', '{"max_tokens":7,"a":1}'),
        (Api.chat, "sglang", '{"max_completion_tokens":3}', None),
        (Api.chat, "sglang", '{"max_completion_tokens":300}', '{"max_completion_tokens":100}'),
        (Api.responses, "vllm", "{}", '{"max_output_tokens":7}'),
        (Api.messages, "vllm", "{}", '{"max_tokens":7}'),
        (Api.generate, "sglang", "{}", '{"sampling_params":{"max_new_tokens":7}}'),
        (Api.generate, "vllm", '{"sampling_params":null}', '{"sampling_params":{"max_tokens":7}}'),
        (Api.generate, "sglang", '{"sampling_params":{"n": 1}}', '{"sampling_params":{"n": 1,"max_new_tokens":7}}'),
        (Api.generate, "sglang", '{"sampling_params":{"max_new_tokens":3}}', None),
        (Api.generate, "sglang", '{"sampling_params":[{}]}', None),
    ],
)
def test_a_default_is_put_in_where_the_engine_looks_for_it(
    api: Api, engine: str, body: str, edited: str | None
) -> None:
    found = BodyEdits((Cap("max_tokens", 100, 7),), ()).apply(api, engine, body.encode())

    assert (None if found is None else found.body.decode()) == edited


NAMES = st.sampled_from(["a", "n", "stop", "max_tokens", "b\\u0063", "logit_bias", "ü", "x y"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 500)
    | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
SPACE = st.sampled_from(["", " ", "\n\t", "  "])


@st.composite
def objects(draw: st.DrawFn) -> str:
    """The text of an object in odd spacing, with names twice at times."""
    members = draw(st.lists(st.tuples(NAMES, VALUES, SPACE, SPACE, SPACE, SPACE), max_size=7))
    texts = [f'{a}"{name}"{b}:{c}{json.dumps(value)}{d}' for name, value, a, b, c, d in members]
    return draw(SPACE) + "{" + draw(SPACE) + ",".join(texts) + "}" + draw(SPACE)


@given(
    text=objects(),
    changes=st.dictionaries(
        st.sampled_from(["a", "n", "stop", "bc", "new"]), st.none() | st.integers(-(2**63), 2**64 - 1)
    ),
)
def test_a_changed_object_says_what_it_said_before_but_for_the_changes(
    text: str, changes: dict[str, int | None]
) -> None:
    before: dict[str, Any] = orjson.loads(text)
    fields = fields_of(text.encode())
    spelled = {name: None if value is None else b"%d" % value for name, value in changes.items()}

    after = orjson.loads(changed(text.encode(), fields, spelled))

    expected = {**before, **changes}
    for name, value in changes.items():
        if value is None:
            expected.pop(name)
            assert after.pop(name, None) is None  # `null` where it stood twice
    assert after == expected


@given(text=objects())
def test_an_object_without_changes_keeps_every_byte(text: str) -> None:
    assert changed(text.encode(), fields_of(text.encode()), {}) == text.encode()


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"a":1', b"null", b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"])
def test_what_is_no_object_is_not_read(text: bytes) -> None:
    with pytest.raises(UNREADABLE):
        fields_of(text)


@given(
    body=st.fixed_dictionaries(
        {"messages": st.just([{"role": "user", "content": "hi"}])},
        optional={
            name: st.integers(0, 99) for name in (*spellings("max_tokens"), *spellings("top_logprobs"), *spellings("n"))
        },
    )
)
def test_what_was_limited_is_classified_as_within_the_limits(body: dict[str, Any]) -> None:
    limits = (Cap("max_tokens", 10), Cap("top_logprobs", 5), Cap("n", 2))
    text = orjson.dumps(body)
    edited = BodyEdits(limits, ()).apply(Api.chat, "sglang", text)
    features = classify("/v1/chat/completions", text if edited is None else edited.body).features

    assert (features.max_tokens or 0) <= 10
    assert features.top_logprobs <= 5
    assert features.n <= 2
