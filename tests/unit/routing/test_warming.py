"""A replica that is being warmed up: it gets nothing while others do, and everything where nobody else would."""

import pytest

from tests.unit.routing.telling import pool_of


def test_it_is_not_picked_and_takes_its_share_afterwards() -> None:
    pool, (cold, other), _ = pool_of(2)
    cold.warm(True)
    assert {pool.admit() for _ in range(4)} == {other}
    cold.warm(False)
    assert pool.admit() is cold


def test_one_that_is_warmed_up_before_it_is_up_comes_up_when_both_are_so() -> None:
    pool, (cold, other), _ = pool_of(2)
    cold.set_healthy(False)
    cold.warm(True)
    cold.set_healthy(True)
    assert pool.admit() is other
    cold.warm(False)
    assert pool.admit() is cold


def test_what_waits_is_offered_its_room_afterwards() -> None:
    pool, (cold, _), told = pool_of(2)
    cold.warm(True)
    pool.waiting = pool.wanted = 1
    cold.warm(False)
    assert told == ["room on r0"]


@pytest.mark.parametrize("how", ["set_healthy", "eject", "drain", "retire", "rest", "warm", "remove"])
def test_where_the_last_other_goes_it_is_taken_cold(how: str) -> None:
    pool, (cold, other), told = pool_of(2)
    cold.warm(True)
    match how:
        case "set_healthy":
            other.set_healthy(False)
        case "rest" | "warm":
            getattr(other, how)(True)
        case "remove":
            pool.remove(other)
        case _:
            getattr(other, how)()
    assert pool.is_available()
    assert told == []
    assert not cold.warming
    assert pool.admit() in (cold, other) if how == "warm" else pool.admit() is cold


def test_one_that_may_not_be_picked_for_another_reason_is_not_taken() -> None:
    pool, (cold, other), told = pool_of(2)
    cold.warm(True)
    cold.drain()
    other.set_healthy(False)
    assert told == ["empty"]
    assert not pool.is_available()


def test_a_pause_that_it_asked_for_does_not_make_its_pool_wait_for_it() -> None:
    pool, (cold, _), _ = pool_of(2)
    cold.warm(True)
    cold.rest(True)
    assert pool.resting == 0
    cold.warm(False)
    assert pool.resting == 1


def test_who_would_be_left_is_told() -> None:
    pool, (cold, other), _ = pool_of(2)
    assert pool.serves_beside(cold)
    other.set_healthy(False)
    assert not pool.serves_beside(cold)
    assert pool.serves_beside(other)
    cold.set_healthy(False)
    assert not pool.serves_beside(cold)
