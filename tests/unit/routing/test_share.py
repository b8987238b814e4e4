"""Shares of what matches a rule: kept to exactly by turns, and the same for ever where they are sticky."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.head import PaperHead
from gateway.routing.request import RouteRequest
from gateway.routing.rule import compile_rule
from gateway.routing.share import Share

MakeRequest = Callable[..., RouteRequest]


def of(make_request: MakeRequest, tenant: str = "", **headers: str) -> RouteRequest:
    head = PaperHead("/", [(name.replace("_", "-"), value) for name, value in headers.items()])
    return RouteRequest("POST", "/", make_request().classification, tenant, head)


@given(percent=st.floats(0, 100), count=st.integers(1, 3000), start=st.integers(0, 500))
def test_by_turns_any_stretch_has_its_share_within_a_few(percent: float, count: int, start: int) -> None:
    share = Share("r", percent)
    for _ in range(start):
        share.turn()

    taken = sum(share.turn() for _ in range(count))

    assert abs(taken - count * percent / 100) <= 5


@pytest.mark.parametrize(("weight", "taken"), [(0, 0), (100, 50)])
def test_nothing_and_everything_are_exact(make_request: MakeRequest, weight: float, taken: int) -> None:
    share = Share("r", weight)

    assert sum(share(make_request()) for _ in range(50)) == taken


def test_a_request_takes_its_turn_once_however_often_it_is_asked_for(make_request: MakeRequest) -> None:
    share, other = Share("r", 50), Share("s", 50)
    requests = [make_request() for _ in range(20)]
    first = [share(request) for request in requests]

    assert first.count(True) == 10
    assert [share.peek(request) for request in requests] == first
    assert [share(request) for request in reversed(requests)] == first[::-1]
    assert [other(request) for request in requests].count(True) == 10


def test_whoever_is_sticky_is_always_in_or_always_out_and_a_larger_share_keeps_who_was_in(
    make_request: MakeRequest,
) -> None:
    requests = [of(make_request, tenant=f"tenant-{number}") for number in range(2000)]
    by_tenant = {percent: Share("r", percent, lambda request: request.tenant) for percent in (5, 20, 60)}
    taken = {percent: {r.tenant for r in requests if share(r) and share(r)} for percent, share in by_tenant.items()}

    assert taken[5] < taken[20] < taken[60]
    for percent, tenants in taken.items():
        assert abs(len(tenants) - 20 * percent) < 100


def test_rules_of_other_names_take_other_tenants(make_request: MakeRequest) -> None:
    requests = [of(make_request, tenant=f"t{number}") for number in range(500)]
    one, other = (
        {request.tenant for request in requests if share(request)}
        for share in (Share(name, 50, lambda request: request.tenant) for name in ("one", "other"))
    )

    assert 60 < len(one & other) < 190


def test_looking_takes_no_turn(make_request: MakeRequest) -> None:
    share, looked_at = Share("r", 40), Share("r", 40)
    turns = [share(make_request()) for _ in range(50)]
    seen = []
    for _ in range(50):
        request = make_request()
        expected = looked_at.peek(request)
        assert looked_at.peek(request) is expected
        seen.append(looked_at(request))
        assert seen[-1] is expected

    assert seen == turns


@pytest.mark.parametrize(
    ("sticky", "tenant", "headers", "place"),
    [
        ("tenant", "acme", {}, "at "),
        ("tenant", "", {}, "by turns"),
        ("x-user", "acme", {"X_User": "u1"}, "at "),
        ("x-user", "acme", {}, "by turns"),
        (None, "acme", {}, "by turns"),
    ],
)
def test_what_is_not_there_to_be_sticky_by_goes_by_turns(
    make_request: MakeRequest, sticky: str | None, tenant: str, headers: dict[str, str], place: str
) -> None:
    rule = compile_rule("r", "p", {}, weight=50, sticky=sticky)

    assert str(rule.conditions[-1].read(of(make_request, tenant, **headers))).startswith(place)
