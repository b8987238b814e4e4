import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.hookcost.classify import Classifier
from gateway.hookcost.form import Form, form_of

MESSAGES = [{"role": "user", "content": "hello"}]


_TEXTS = st.sampled_from(["", "a", "[]", '"messages":[]', "é", "\\"])
_MESSAGE_LISTS = st.lists(
    st.fixed_dictionaries({"content": st.one_of(_TEXTS, st.just([]))}, optional={"role": _TEXTS, "tools": st.just([])}),
    max_size=2,
)
_REST = st.fixed_dictionaries(
    {},
    optional={
        "model": _TEXTS,
        "stop": st.lists(_TEXTS, max_size=2),
        "tools": _MESSAGE_LISTS,
        "extra": _MESSAGE_LISTS,
        "response_format": st.sampled_from(
            [{"type": "json_object"}, {"type": "text"}, {"messages": [{"content": "a"}]}]
        ),
        "top_logprobs": st.integers(0, 3),
    },
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A chat body whose fields stand in any order; few values, so that different bodies often share parts."""
    fields = [*draw(_REST).items(), ("messages", draw(_MESSAGE_LISTS))]
    return json.dumps(dict(draw(st.permutations(fields)))).encode()


def spelled(messages: object, **rest: object) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **rest}).encode()


def known(body: bytes) -> Form:
    form = form_of(body)
    assert form is not None
    return form


def test_requests_that_differ_in_their_messages_alone_have_one_form() -> None:
    first = known(spelled(MESSAGES, stop=["a"]))
    second = known(spelled([{"role": "system", "content": "é" * 3}, *MESSAGES], stop=["a"]))

    assert first.key == second.key != b""
    assert (first.prompt_bytes, second.prompt_bytes) == (5, 11)


@pytest.mark.parametrize("content", ["", "hello", "x" * 40_000])
def test_the_place_is_where_the_messages_stand(content: str) -> None:
    messages = [{"role": "user", "content": content}]
    body = spelled(messages, stop=["a"])

    form = known(body)

    assert json.loads(body[form.start : form.end]) == messages


def test_what_only_begins_like_the_messages_is_not_taken_for_them() -> None:
    messages = [{"role": "user", "content": "x" * 100 + "a"}]
    body = json.dumps({"extra": [{"role": "user", "content": "x" * 100 + "b"}], "messages": messages}).encode()

    form = known(body)

    assert json.loads(body[form.start : form.end]) == messages


@pytest.mark.parametrize(
    "body",
    [
        spelled([{"role": "user", "content": [{"type": "text", "text": "x"}]}]),
        spelled([{"role": "user", "content": "x", "tools": []}]),
        spelled([{"role": "user", "content": "x", "tools": None}]),
        spelled([{"role": "assistant", "content": None}]),
        spelled("hello"),
        spelled([["x"]]),
        b'{"model":"m"}',
        b'{"messages":[{"content":"\\ud800"}]}',
        b'{"messages":[{"content":"x"}]',
        b"[]",
        b"",
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_body_whose_messages_are_no_list_of_texts_has_none(body: bytes) -> None:
    assert form_of(body) is None


@pytest.mark.parametrize(
    "pair",
    [
        (spelled(MESSAGES, stop=["a"]), spelled(MESSAGES, stop=["a", "b"])),
        (spelled(MESSAGES, messages2=MESSAGES), spelled(MESSAGES, messages2=[])),
        # The text of the messages stands elsewhere, too, and there it is a parameter.
        (spelled(MESSAGES, metadata=MESSAGES), spelled(MESSAGES, metadata=[{"role": "user", "content": "other"}])),
        (
            json.dumps({"metadata": {"messages": MESSAGES}, "messages": MESSAGES}).encode(),
            json.dumps({"metadata": {"messages": [{"role": "user", "content": "b"}]}, "messages": MESSAGES}).encode(),
        ),
    ],
)
def test_whatever_differs_beside_the_messages_makes_another_form(pair: tuple[bytes, bytes]) -> None:
    assert known(pair[0]).key != known(pair[1]).key


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"content":"a"}],"messages":[{"content":"b"}],"stop":["x"]}',
        b'{"mess\\u0061ges":[{"content":"a"}],"messages":[{"content":"b"}],"stop":["x"]}',
        b'{"messages":[{"content":"a"}],"mess\\u0061ges":[{"content":"b","tools":[{"type":"function"}]}]}',
        b'{"messages":[{"content":"a","content":"bb"}],"stop":["x"]}',
        b'{"messages":[{"content":"a","t\\u006fols":[{}]}]}',
    ],
)
def test_an_odd_spelling_is_classified_the_same_each_time(body: bytes) -> None:
    classifier = Classifier()

    first = classifier.classify("/v1/chat/completions", body)

    assert first == Classifier().classify("/v1/chat/completions", body)
    for _ in range(3):
        assert classifier.classify("/v1/chat/completions", body) == first


@given(st.data(), st.integers(1, 3))
def test_what_was_seen_before_never_changes_an_answer(data: st.DataObject, times: int) -> None:
    seen, body = data.draw(bodies()), data.draw(bodies())
    used = Classifier()
    for _ in range(times):
        used.classify("/v1/chat/completions", seen)

    assert used.classify("/v1/chat/completions", body) == Classifier().classify("/v1/chat/completions", body)
