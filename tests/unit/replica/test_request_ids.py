"""Whatever a request runs as in SGLang is recognised by its ids."""

import uuid
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from replica.sglang.requestids import name_samples, resolved, take_header


class Request:
    """As SGLang's `GenerateReqInput`, for as much of it as is wrapped."""

    def __init__(self, rid: Any) -> None:
        self.rid = rid

    def regenerate_rid(self) -> Any:
        self.rid = [uuid.uuid4().hex for _ in self.rid] if isinstance(self.rid, list) else uuid.uuid4().hex
        return self.rid


@pytest.fixture
def request_class() -> type[Request]:
    class Fresh(Request):
        regenerate_rid = Request.regenerate_rid

    name_samples(Fresh)
    return Fresh


def test_a_sample_is_named_after_its_request_and_no_two_are_named_alike(request_class: type[Request]) -> None:
    names = [request_class("mine").regenerate_rid() for _ in range(10)] + [request_class("mine_0").regenerate_rid()]
    assert len(set(names)) == 11
    assert all(name.startswith("mine_") for name in names)
    assert names[-1].startswith("mine_0_")
    # SGLang aborts every id that begins with the one to be aborted.
    assert not [name for name in names for other in names if other is not name and other.startswith(name)]
    one = request_class("mine")
    assert one.regenerate_rid() == one.rid


@pytest.mark.parametrize("rid", [None, ["a", "b"], 7])
def test_an_id_that_is_no_text_is_left_to_sglang(request_class: type[Request], rid: Any) -> None:
    one = request_class(rid)
    made = one.regenerate_rid()
    assert made == one.rid
    assert "_" not in made


def test_naming_them_twice_is_naming_them_once(request_class: type[Request]) -> None:
    name_samples(request_class)
    name = request_class("mine").regenerate_rid()
    assert name.count("_") == 1


def test_an_engine_that_has_no_such_function_starts_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    called: list[int] = []
    resolved(lambda number: called.append(number), 3)
    assert called == [3]
    assert "some requests' cost is nobody's" in caplog.text


class Manager:
    """As SGLang's `TokenizerManager`, for as much of it as is wrapped."""

    async def generate_request(self, obj: Any, request: Any = None) -> AsyncIterator[Any]:
        yield obj.rid


@pytest.fixture(scope="module")
def manager() -> Manager:
    take_header(Manager, Request)
    take_header(Manager, Request)
    return Manager()


@pytest.mark.parametrize(
    ("rid", "headers", "expected"),
    [
        (None, {"x-steplane-rid": "mine"}, "mine"),
        ("own", {"x-steplane-rid": "mine"}, "own"),
        ("", {"x-steplane-rid": "mine"}, ""),
        (["a"], {"x-steplane-rid": "mine"}, ["a"]),
        (None, {}, None),
        (None, {"x-steplane-rid": ""}, None),
        (None, {"x-steplane-rid": "x" * 200}, None),
    ],
)
async def test_a_request_without_an_id_takes_that_of_its_header(
    manager: Manager, rid: Any, headers: dict[str, str], expected: Any
) -> None:
    http = SimpleNamespace(headers=headers)
    assert [seen async for seen in manager.generate_request(Request(rid), http)] == [expected]


async def test_what_comes_without_http_or_is_no_request_for_generation_is_left_alone(manager: Manager) -> None:
    assert [seen async for seen in manager.generate_request(Request(None))] == [None]
    http = SimpleNamespace(headers={"x-steplane-rid": "mine"})
    assert [seen async for seen in manager.generate_request(SimpleNamespace(rid=None), http)] == [None]
