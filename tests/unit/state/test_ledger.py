"""What one gateway knows of records while Redis takes its changes, late, twice or never."""

import math
from itertools import count

import pytest

from gateway.state.ledger import Change, Ledger, Operation
from gateway.state.store import Record
from gateway.state.stored import NO_CHANGE, Stored, to_bytes, to_name, unpack


class Book:
    """A ledger with what it told, and the clock of an imagined Redis."""

    def __init__(self, capacity: int = 1000) -> None:
        self.now_ms = 1e12
        self.reports: list[tuple[str, int, bytes]] = []
        self.outcomes: list[bool] = []
        numbers = count(1)
        self.ledger = Ledger(
            report=lambda *report: self.reports.append(report),
            settle=lambda decided, applied: decided(applied),
            new_token=lambda: f"own.{next(numbers)}",
            now_ms=lambda: self.now_ms,
            capacity=capacity,
        )

    def force(self, value: bytes, key: str = "s") -> int:
        return self.ledger.force(key, value, math.inf)

    def advance(self, expected: int, value: bytes) -> None:
        self.ledger.advance("s", expected, value, math.inf, self.outcomes.append)

    def sent(self) -> Change:
        (change,) = self.ledger.to_send(10)
        return change


def stored(version: int, token: str, value: bytes, fence: int | None = None, fence_token: str = "") -> Stored:
    """A record; forced by `token` unless another fence is given."""
    return Stored(version, version if fence is None else fence, fence_token or token, token, 0, value)


def test_a_force_is_shown_at_once_and_reported_once_when_redis_agrees() -> None:
    book = Book()
    assert book.force(b"open") == 1
    change = book.sent()
    assert (change.operation, change.version, change.ground) == (Operation.force, 1, NO_CHANGE)
    book.ledger.heard("s", stored(1, "own.1", b"open"))
    book.ledger.answered(change, True, stored(1, "own.1", b"open"))
    assert book.reports == [("s", 1, b"open")]
    assert book.ledger.pending == 0


def test_a_force_that_others_came_before_is_reported_again_with_its_true_version() -> None:
    book = Book()
    book.force(b"open")
    change = book.sent()
    book.ledger.heard("s", stored(1, "other.1", b"other"))
    book.ledger.answered(change, False, stored(2, "own.1", b"open"))
    assert book.reports == [("s", 1, b"open"), ("s", 2, b"open")]


def test_only_the_last_of_several_forces_waits() -> None:
    book = Book()
    for value in (b"1", b"2", b"3"):
        book.force(value)
    assert [version for _, version, _ in book.reports] == [1, 2, 3]
    change = book.sent()
    assert (change.value, change.version) == (b"3", 3)


@pytest.mark.parametrize(
    ("clean", "operation", "outcomes"),
    [(True, Operation.advance, []), (False, None, [False])],
    ids=["nothing came between", "something came between"],
)
def test_an_advance_upon_a_force_goes_on_only_if_the_force_found_what_it_was_made_upon(
    clean: bool, operation: Operation | None, outcomes: list[bool]
) -> None:
    book = Book()
    book.force(b"open")
    book.advance(1, b"closed")
    book.ledger.answered(book.sent(), clean, stored(1 if clean else 2, "own.1", b"open"))
    changes = book.ledger.to_send(10)
    assert [change.operation for change in changes] == ([operation] if operation else [])
    assert book.outcomes == outcomes


@pytest.mark.parametrize("expected", [0, 2, 7])
def test_an_advance_from_another_version_than_the_one_shown_is_refused_at_once(expected: int) -> None:
    book = Book()
    book.force(b"open")
    book.advance(expected, b"closed")
    assert book.outcomes == [False]


def test_an_advance_is_shown_when_redis_has_applied_it() -> None:
    book = Book()
    book.ledger.heard("s", stored(4, "other.1", b"open"))
    book.advance(4, b"closed")
    change = book.sent()
    assert book.ledger.record("s") == Record(4, b"open")
    book.ledger.answered(change, True, stored(5, change.token, b"closed", 4, "other.1"))
    assert book.ledger.record("s") == Record(5, b"closed")
    assert book.outcomes == [True]


def test_a_second_advance_made_before_the_answer_to_the_first_goes_on_from_it() -> None:
    book = Book()
    book.ledger.heard("s", stored(4, "other.1", b"open"))
    book.advance(4, b"half-open")
    first = book.sent()
    book.advance(4, b"closed")
    book.ledger.answered(first, True, stored(5, first.token, b"half-open", 4, "other.1"))
    second = book.sent()
    assert (second.operation, second.ground, second.value) == (Operation.advance, first.token, b"closed")
    book.ledger.answered(second, True, stored(6, second.token, b"closed", 4, "other.1"))
    assert book.outcomes == [True, True]


def test_a_force_takes_the_place_of_an_advance_that_waits() -> None:
    book = Book()
    book.ledger.heard("s", stored(4, "other.1", b"open"))
    book.advance(4, b"closed")
    book.force(b"open again")
    assert book.outcomes == [False]
    assert book.sent().operation is Operation.force


def test_a_change_whose_answer_is_lost_is_sent_again_under_the_same_token() -> None:
    book = Book()
    book.ledger.heard("s", stored(4, "other.1", b"open"))
    book.advance(4, b"closed")
    first = book.sent()
    book.ledger.unanswered()
    # It had been applied.
    book.ledger.heard("s", stored(5, first.token, b"closed", 4, "other.1"))
    again = book.sent()
    assert again.token == first.token
    book.ledger.answered(again, True, stored(5, first.token, b"closed", 4, "other.1"))
    assert book.outcomes == [True]
    assert book.reports == [("s", 4, b"open"), ("s", 5, b"closed")]


@pytest.mark.parametrize(
    ("known", "told", "restored"),
    [
        # the same line of changes, further on
        (stored(4, "a", b"1"), stored(5, "b", b"2", 4, "a"), False),
        (stored(4, "a", b"1"), stored(5, "b", b"2"), False),
        # another line that knows nothing of the force known here
        (stored(4, "a", b"1"), stored(5, "b", b"2", 3, "z"), True),
        (stored(4, "a", b"1"), stored(6, "b", b"2", 4, "z"), True),
        (stored(4, "a", b"1"), stored(4, "b", b"2"), True),
        # late news
        (stored(4, "a", b"1"), stored(3, "b", b"2"), False),
        (stored(4, "a", b"1"), stored(4, "a", b"1"), False),
    ],
)
def test_what_redis_tells_is_taken_unless_it_leaves_out_a_force_known_here(
    known: Stored, told: Stored, restored: bool
) -> None:
    book = Book()
    book.ledger.heard("s", known)
    book.ledger.heard("s", told)
    changes = book.ledger.to_send(10)
    assert [change.operation for change in changes] == ([Operation.restore] if restored else [])
    if restored:
        # Redis decides for the other one, and counts it up.
        book.ledger.answered(changes[0], False, stored(9, told.token, told.value, 8, "z"))
        assert book.ledger.pending == 0
        assert book.ledger.record("s") == Record(9, told.value)


def test_what_redis_has_lost_is_restored() -> None:
    book = Book()
    book.ledger.heard("s", stored(4, "a", b"1"))
    book.ledger.heard("t", stored(2, "b", b"2"))
    book.ledger.restore_all_but({("t", "b")})
    change = book.sent()
    assert (change.operation, change.key, change.version, change.token) == (Operation.restore, "s", 4, "a")
    book.ledger.answered(change, True, stored(4, "a", b"1"))
    assert book.ledger.pending == 0
    assert len(book.reports) == 2


@pytest.mark.parametrize("version", [7, 1])
def test_a_record_is_over_at_its_time_on_redis_clock_and_may_begin_anew(version: int) -> None:
    book = Book()
    book.ledger.heard("s", Stored(version, version, "a", "a", int(book.now_ms) + 1000, b"old"))
    book.now_ms += 1000
    assert book.ledger.record("s") is None
    # Before it is looked for and found to be over.
    book.ledger.heard("s", stored(1, "b", b"new"))
    assert book.ledger.record("s") == Record(1, b"new")
    assert book.ledger.expire() == []


def test_beyond_its_capacity_published_keys_are_forgotten_first() -> None:
    book = Book(capacity=3)
    book.force(b"kept", key="unpublished")
    for number in range(5):
        book.ledger.heard(str(number), stored(1, f"a{number}", b"1"))
    assert set(book.ledger.records()) == {"unpublished", "3", "4"}
    assert book.ledger.dropped == 0
    for number in range(3):
        book.force(b"1", key=f"more {number}")
    assert book.ledger.dropped == 1


@pytest.mark.parametrize("packed", [b"", b"1 1 a b\nx", b"1 1 a b 0", b"a b c d e\nx"])
def test_bytes_that_are_no_record_are_told_apart(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a record|invalid literal"):
        unpack(packed)


def test_any_name_survives_the_way_to_redis_and_back() -> None:
    for name in ("", "ключ", "\ud800", "\0\n"):
        assert to_name(to_bytes(name)) == name


def test_what_has_expired_is_named_once_so_that_redis_removes_it_too() -> None:
    book = Book()
    book.ledger.heard("s", Stored(1, 1, "a", "a", int(book.now_ms) + 1000, b"old"))
    book.ledger.heard("t", stored(1, "b", b"new"))
    assert book.ledger.expire() == []
    book.now_ms += 1000
    assert book.ledger.expire() == ["s"]
    assert book.ledger.expire() == []
