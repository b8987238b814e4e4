from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.pool import Pool
from gateway.routing.replica import Replica


def replicas_with(loads: list[int | None]) -> tuple[Replica, ...]:
    """One replica for each entry: its exchanges in flight, or None for one that is down."""
    return tuple(
        Replica(f"r{at}", f"http://h:{at}", "h", at, available=load is not None, in_flight=load or 0)
        for at, load in enumerate(loads)
    )


@pytest.mark.parametrize(
    ("loads", "excluded", "picked"),
    [
        ([3, 1, 2], [], 1),
        ([0], [], 0),
        ([None, 9, None], [], 1),
        ([3, 1, 2], [1], 2),
        ([3, 1, 2], [1, 2], 0),
        ([3, 1, 2], [0, 1, 2], None),
        ([None, 1], [1], None),
        ([None, None], [], None),
        ([], [], None),
    ],
)
def test_the_available_replica_with_the_least_in_flight_is_picked(
    loads: list[int | None], excluded: list[int], picked: int | None
) -> None:
    replicas = replicas_with(loads)

    replica = Pool("p", replicas).pick([replicas[at] for at in excluded])

    assert replica is (None if picked is None else replicas[picked])


def test_equals_take_turns() -> None:
    replicas = replicas_with([0, 0, 0])
    pool = Pool("p", replicas)

    assert [pool.pick() for _ in range(6)] == [*replicas, *replicas]


def test_equals_take_turns_under_load_too() -> None:
    replicas = replicas_with([5, 7, 5, None])
    pool = Pool("p", replicas)

    counts = Counter(replica.name for _ in range(10) if (replica := pool.pick()))

    assert counts == {"r0": 5, "r2": 5}


def test_a_pool_is_available_while_any_replica_is() -> None:
    assert Pool("p", replicas_with([None, 4])).is_available()
    assert not Pool("p", replicas_with([None, None])).is_available()
    assert not Pool("p", ()).is_available()


@given(
    loads=st.lists(st.none() | st.integers(0, 5), max_size=8),
    excluded=st.sets(st.integers(0, 7)),
    turns=st.integers(1, 10),
)
def test_no_pick_is_ever_worse_than_another_choice(loads: list[int | None], excluded: set[int], turns: int) -> None:
    replicas = replicas_with(loads)
    pool = Pool("p", replicas)
    tried = [replica for at, replica in enumerate(replicas) if at in excluded]
    candidates = [replica for replica in replicas if replica.available and replica not in tried]

    for _ in range(turns):
        replica = pool.pick(tried)
        if not candidates:
            assert replica is None
            return
        assert replica in candidates
        assert replica.in_flight == min(candidate.in_flight for candidate in candidates)
        replica.in_flight += 1
