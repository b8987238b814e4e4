"""Counters of one kind: what is added here, what Redis says, and what others must have added."""

from collections.abc import Mapping

import pytest

from gateway.state.tally import Tally


class Book:
    """A tally with a clock, and what it reported."""

    def __init__(self, capacity: int = 1000) -> None:
        self.now = 0.0
        self.reports: list[tuple[str, dict[str, float]]] = []
        self.tally = Tally(self.report, lambda: self.now, ttl_s=100.0, capacity=capacity)

    def report(self, key: str, amounts: Mapping[str, float]) -> None:
        self.reports.append((key, dict(amounts)))


def test_a_batch_is_offered_until_it_is_delivered_and_later_additions_go_into_the_next() -> None:
    tally = Book().tally
    tally.add("s", {"steps": 1.0})
    first = tally.next_batch(10)
    tally.add("s", {"steps": 2.0})
    assert tally.next_batch(10) is first
    assert first is not None
    assert (first.number, first.amounts) == (1, {"s": {"steps": 1.0}})
    assert tally.totals("s") == {"steps": 3.0}
    tally.delivered({"s": {"steps": 1.0}})
    second = tally.next_batch(10)
    assert second is not None
    assert (second.number, second.amounts) == (2, {"s": {"steps": 2.0}})
    tally.delivered({"s": {"steps": 3.0}})
    assert tally.next_batch(10) is None
    assert tally.totals("s") == {"steps": 3.0}


@pytest.mark.parametrize(
    ("readings", "reported"),
    [
        # totals as read one after the other; what each says of others' additions
        ([5.0], [5.0]),
        ([5.0, 5.0], [5.0]),
        ([5.0, 7.5], [5.0, 2.5]),
        ([0.1 + 0.2, 0.3], [0.1 + 0.2]),
        # Redis lost some: nothing is taken back, and nothing told twice
        ([5.0, 3.0, 4.0], [5.0, 1.0]),
    ],
)
def test_others_have_added_what_a_total_grew_by(readings: list[float], reported: list[float]) -> None:
    book = Book()
    for total in readings:
        book.tally.read({"s": {"us": total}})
    assert [amounts["us"] for _, amounts in book.reports] == reported


def test_our_own_additions_are_not_reported() -> None:
    book = Book()
    book.tally.add("s", {"steps": 2.0})
    book.tally.next_batch(10)
    book.tally.delivered({"s": {"steps": 5.0, "us": 1.0}})
    assert book.reports == [("s", {"steps": 3.0, "us": 1.0})]


def test_what_there_is_no_room_for_is_dropped_and_counted() -> None:
    tally = Book(capacity=2).tally
    for key in ("a", "b", "c"):
        tally.add(key, {"steps": 1.0})
    assert tally.dropped == 1
    tally.read({key: {"steps": 1.0} for key in ("d", "e", "f")})
    assert tally.dropped == 2


def test_totals_that_nobody_changes_are_forgotten_some_time_after_redis_did() -> None:
    book = Book()
    book.tally.read({"old": {"steps": 1.0}})
    book.now = 120.0
    book.tally.read({"new": {"steps": 1.0}})
    book.tally.expire()
    assert book.tally.totals("old") == {"steps": 1.0}
    book.now = 170.0
    book.tally.expire()
    assert book.tally.totals("old") == {}
    assert book.tally.totals("new") == {"steps": 1.0}
