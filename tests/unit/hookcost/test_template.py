import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.hookcost.classify import Classifier
from gateway.hookcost.form import form_of
from gateway.hookcost.template import Templates

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hello"}]
OTHERS = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "é"}]
REST = {"model": "m", "max_tokens": 64, "stop": ["a"]}


def spelled(messages: object, **rest: object) -> bytes:
    return json.dumps({"messages": messages, **rest}).encode()


def kept(*bodies: bytes, max_bytes: int = 1 << 20) -> Templates[int]:
    """Templates of bodies, which have their numbers for values."""
    templates: Templates[int] = Templates(max_bytes)
    for number, body in enumerate(bodies):
        form = form_of(body)
        assert form is not None
        templates.keep(body, form.start, form.end, number)
    return templates


def test_a_body_that_differs_in_its_messages_alone_is_known() -> None:
    assert kept(spelled(MESSAGES, **REST)).match(spelled(OTHERS, **REST)) == (0, 10)


def test_so_is_one_whose_messages_come_last() -> None:
    first = json.dumps({**REST, "messages": MESSAGES}).encode()
    second = json.dumps({**REST, "messages": OTHERS}).encode()

    assert kept(first).match(second) == (0, 10)


def test_of_bodies_that_end_alike_each_is_known_by_its_own() -> None:
    rest = {"model": "m", "max_tokens": 64}
    bodies = [spelled(MESSAGES, stop=["x" * number], **rest) for number in range(4)]
    templates = kept(*bodies)

    assert [templates.match(body)[0] for body in bodies] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "body",
    [
        spelled(OTHERS, **REST, n=2),
        spelled([], **REST)[:-1],
        spelled("text", **REST),
        spelled([{"role": "user", "content": [{"type": "text", "text": "x"}]}], **REST),
        spelled([{"role": "user", "content": "x", "tools": []}], **REST),
        spelled(OTHERS, **REST).replace(b"be brief", b"be\nbrief"),
        spelled(OTHERS, **REST).replace(b"brief", b"\xff"),
        b'{"messages": [], "stop": [], "messages": ' + spelled(OTHERS, **REST)[13:],
        spelled(OTHERS, **REST)[:13] + spelled([], **REST)[15:],
        spelled(MESSAGES, **REST)[:-20],
        b"",
    ],
)
def test_a_body_that_differs_in_more_is_not(body: bytes) -> None:
    assert kept(spelled(MESSAGES, **REST)).match(body) == (None, -1)


def test_messages_in_between_that_are_more_than_one_value_are_none() -> None:
    body = spelled(MESSAGES, **REST)

    assert kept(body).match(body.replace(b"}], ", b'}], "n": 128, "m": [{"content": "x"}], ')) == (None, -1)


@pytest.mark.parametrize(
    "body",
    [
        # What looks like the messages stands in a text, or is another field's.
        b'{"user":"[]","messages":[],"model":"a-model"}',
        b'{"stop_regex":[],"messages":[],"model":"a-model"}',
        b'{"messages":[],"messages":[],"model":"a-model"}',
    ],
)
def test_a_place_where_other_messages_would_not_be_read_is_not_taken_for_theirs(body: bytes) -> None:
    assert kept(body).match(body) == (None, -1)


def test_when_there_are_too_many_all_are_forgotten_and_those_in_use_come_back() -> None:
    bodies = [spelled(MESSAGES, user=f"{number:030}") for number in range(5)]
    templates = kept(*bodies, max_bytes=4500)

    assert [templates.match(body)[0] for body in bodies] == [None, None, None, None, 4]


def test_what_ends_like_many_others_gets_a_place_in_the_end() -> None:
    many = [spelled(MESSAGES, stop=[f"{number}"], model="m", max_tokens=64) for number in range(9)]
    templates = kept(*many)
    assert templates.match(many[8]) == (None, -1)

    form = form_of(many[8])
    assert form is not None
    for _ in range(1001):
        templates.keep(many[8], form.start, form.end, 8)

    assert templates.match(many[8]) == (8, 5)


_CONTENTS = st.text(max_size=20)
_LISTS = st.lists(st.fixed_dictionaries({"role": _CONTENTS, "content": _CONTENTS}), max_size=3)


@given(_LISTS, _LISTS, st.booleans(), st.booleans())
def test_whatever_the_messages_the_classification_is_that_of_a_body_read_in_full(
    first: list[dict[str, str]], second: list[dict[str, str]], ascii_only: bool, last: bool
) -> None:
    def body(messages: list[dict[str, str]]) -> bytes:
        rest = {"model": "m", "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}
        document = {**rest, "messages": messages} if last else {"messages": messages, **rest}
        return json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")

    used = Classifier()
    for _ in range(3):
        used.classify(CHAT, body(first))

    assert used.classify(CHAT, body(second)) == Classifier().classify(CHAT, body(second))
