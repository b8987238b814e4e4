import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.fairness import Lanes
from gateway.routing.replica import Replica
from gateway.routing.ticket import Ticket

REPLICA = Replica("r", "http://h:1", "h", 1)
OTHER = Replica("s", "http://h:2", "h", 2)


def ticket(
    number: int,
    step_us: float = 100.0,
    tenant: str = "",
    priority: int = 0,
    structured: bool = False,
    excluded: tuple[Replica, ...] = (),
) -> Ticket:
    made = Ticket(
        step_us, structured, lambda _: None, lambda _: None, tenant=tenant, priority=priority, excluded=excluded
    )
    made.number = number
    return made


def lanes_of(*tickets: Ticket) -> Lanes:
    lanes = Lanes()
    for one in tickets:
        lanes.push(one)
    return lanes


@pytest.mark.parametrize(
    ("room_us", "takes_structured", "replica", "first"),
    [
        (1000.0, True, REPLICA, 1),
        (1000.0, True, OTHER, 2),  # 1 has tried that one
        (500.0, True, REPLICA, 2),
        (499.0, True, REPLICA, 3),
        (500.0, False, REPLICA, 3),
        (99.0, True, REPLICA, 4),
        (0.0, True, REPLICA, 4),
        (-1.0, True, REPLICA, None),
        (math.inf, False, OTHER, 3),
    ],
)
def test_the_first_who_fits_is_found(
    room_us: float, takes_structured: bool, replica: Replica, first: int | None
) -> None:
    lanes = lanes_of(
        ticket(1, 900.0, excluded=(OTHER,)), ticket(2, 500.0, structured=True), ticket(3, 100.0), ticket(4, 0.0)
    )

    found = lanes.first_within(room_us, takes_structured, replica)

    assert (found and found.number) == first


@given(
    costs=st.lists(st.tuples(st.sampled_from([0.0, 10.0, 50.0, 90.0]), st.booleans()), max_size=12),
    steps=st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 20.0, 60.0, math.inf]), st.booleans()), max_size=20),
    data=st.data(),
)
def test_a_search_in_vain_hides_nobody_from_the_next(
    costs: list[tuple[float, bool]], steps: list[tuple[float, bool]], data: st.DataObject
) -> None:
    lanes = Lanes()
    waiting: list[Ticket] = []
    coming = [ticket(at, cost, structured=structured) for at, (cost, structured) in enumerate(costs)]
    for room_us, takes_structured in steps:
        comes = data.draw(st.booleans())
        if comes and coming:
            waiting.append(coming.pop(0))
            lanes.push(waiting[-1])
        fitting = [one for one in waiting if one.step_us <= room_us and (takes_structured or not one.structured)]

        found = lanes.first_within(room_us, takes_structured, REPLICA)

        assert found is (fitting[0] if fitting else None)
        if found is not None and data.draw(st.booleans()):
            waiting.remove(found)
            lanes.admit(found)


def test_a_tenant_that_is_ahead_stays_so_though_it_waits_for_nothing_meanwhile() -> None:
    lanes = lanes_of(ticket(1, 500.0, tenant="a"), ticket(2, tenant="b"), ticket(3, tenant="b"), ticket(4, tenant="b"))
    lanes.admit(next(iter(lanes)))
    lanes.admit(next(iter(lanes)))

    lanes.push(ticket(5, tenant="a"))
    lanes.push(ticket(6, tenant="c"))

    assert [(one.tenant, one.number) for one in lanes] == [("b", 3), ("b", 4), ("c", 6), ("a", 5)]


def test_who_was_admitted_past_the_others_pays_for_it() -> None:
    lanes = lanes_of(ticket(1, tenant="a"), ticket(2, tenant="b"), ticket(3, tenant="b"))

    lanes.charge(ticket(0, 500.0, tenant="a"))

    assert [one.number for one in lanes] == [2, 3, 1]


def test_the_past_of_tenants_is_bounded() -> None:
    lanes = lanes_of(*(ticket(at, tenant="stays") for at in range(40_000)))
    for at in range(20_000):
        one = ticket(100_000 + at, tenant=f"passing{at}")
        lanes.push(one)
        lanes.leave(one) if at % 2 else lanes.admit(one)
        lanes.admit(next(iter(lanes)))

    assert len(lanes._by_tenant) <= 300

    for one in tuple(lanes):
        lanes.leave(one)
    assert not lanes._by_tenant


def test_a_tenant_is_charged_for_requests_without_a_cost_too_so_that_they_take_turns() -> None:
    lanes = lanes_of(*(ticket(at, 0.0, tenant="a") for at in range(3)), ticket(9, 0.0, tenant="b"))

    order = []
    while lanes:
        first = next(iter(lanes))
        order.append(first.number)
        lanes.admit(first)

    assert order == [0, 9, 1, 2]


Change = Callable[[Lanes, Ticket], None]


@given(
    tickets=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.floats(0, 1e4), st.sampled_from(["admit", "leave"])),
        max_size=30,
    ),
    data=st.data(),
)
def test_whatever_comes_and_goes_the_order_is_complete_and_sorted(
    tickets: list[tuple[str, int, float, str]], data: st.DataObject
) -> None:
    changes: dict[str, Change] = {"admit": Lanes.admit, "leave": Lanes.leave}
    lanes = Lanes()
    waiting: list[Ticket] = []
    for number, (tenant, priority, step_us, way) in enumerate(tickets):
        waiting.append(ticket(number, step_us, tenant, priority))
        lanes.push(waiting[-1])
        if data.draw(st.booleans()):
            gone = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            changes[way](lanes, gone)
        order = list(lanes)
        assert len(lanes) == len(order)
        assert set(order) == set(waiting)
        assert [one.priority for one in order] == sorted((one.priority for one in order), reverse=True)
        for tenant_ in "abc":
            for priority_ in range(3):
                own = [one.number for one in order if (one.tenant, one.priority) == (tenant_, priority_)]
                assert own == sorted(own)
