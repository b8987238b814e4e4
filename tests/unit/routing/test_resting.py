"""A replica whose engine asked for a pause: it gets nothing new, and its pool is busy rather than gone."""

import pytest

from tests.unit.routing.telling import pool_of


def test_a_resting_replica_is_not_picked() -> None:
    pool, replicas, _ = pool_of(2)
    replicas[0].rest(True)
    assert {pool.admit() for _ in range(4)} == {replicas[1]}
    assert pool.resting == 1


def test_a_pool_of_resting_replicas_is_available_admits_nobody_and_is_not_empty() -> None:
    pool, replicas, told = pool_of(2)
    for replica in replicas:
        replica.rest(True)
    assert pool.is_available()
    assert pool.can_serve()
    assert not pool.can_serve(replicas)
    assert pool.admit() is None
    assert told == []


def test_after_the_pause_those_that_wait_are_offered_its_room() -> None:
    pool, replicas, told = pool_of(1)
    replicas[0].rest(True)
    pool.waiting = pool.wanted = 1
    replicas[0].rest(False)
    assert told == ["room on r0"]
    assert pool.resting == 0


@pytest.mark.parametrize("how", ["set_healthy", "eject", "drain", "retire"])
def test_a_pool_whose_last_replica_goes_while_it_rests_is_empty(how: str) -> None:
    pool, replicas, told = pool_of(1)
    replicas[0].rest(True)
    if how == "set_healthy":
        replicas[0].set_healthy(False)
    else:
        getattr(replicas[0], how)()
    assert told == ["empty"]
    assert not pool.is_available()
    assert pool.resting == 0


def test_a_replica_that_comes_back_while_its_pause_lasts_rests() -> None:
    pool, replicas, told = pool_of(1)
    replicas[0].rest(True)
    replicas[0].set_healthy(False)
    replicas[0].set_healthy(True)
    assert pool.is_available()
    assert pool.admit() is None
    replicas[0].rest(False)
    assert pool.admit() is replicas[0]
    assert told == ["empty"]


def test_a_pause_that_ends_where_the_replica_is_down_changes_nothing() -> None:
    pool, replicas, told = pool_of(1)
    replicas[0].rest(True)
    replicas[0].set_healthy(False)
    replicas[0].rest(False)
    assert not pool.is_available()
    assert told == ["empty"]
