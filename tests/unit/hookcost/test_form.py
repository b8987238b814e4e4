import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.hookcost.classify import Classifier
from gateway.hookcost.form import NO_FORM, form_of

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


def test_requests_that_differ_in_their_messages_alone_have_one_form() -> None:
    first = form_of(spelled(MESSAGES, stop=["a"]))
    second = form_of(spelled([{"role": "system", "content": "é" * 3}, *MESSAGES], stop=["a"]))

    assert first[0] == second[0] != b""
    assert (first[1], second[1]) == (5, 11)


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
    assert form_of(body) == NO_FORM


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
    assert form_of(pair[0])[0] != form_of(pair[1])[0]


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
def test_an_odd_spelling_is_classified_the_same_the_second_time(body: bytes) -> None:
    classifier = Classifier()

    first = classifier.classify("/v1/chat/completions", body)

    assert (
        classifier.classify("/v1/chat/completions", body)
        == first
        == Classifier().classify("/v1/chat/completions", body)
    )


@given(st.data())
def test_what_was_seen_before_never_changes_an_answer(data: st.DataObject) -> None:
    seen, body = data.draw(bodies()), data.draw(bodies())
    used = Classifier()
    used.classify("/v1/chat/completions", seen)

    assert used.classify("/v1/chat/completions", body) == Classifier().classify("/v1/chat/completions", body)
