import math
from collections import Counter
from fractions import Fraction

import pytest
from asks import replica, replicas
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.balance.ring import Ring, bounds, key_of
from gateway.routing.replica import Replica

KEYS = [key_of(b"key %d" % at) for at in range(2000)]


def homes(members: tuple[Replica, ...], keys: list[int] = KEYS) -> list[Replica | None]:
    ring = Ring()
    ring.follow(members)
    return [ring.home(key, lambda _: True) for key in keys]


def test_every_gateway_finds_the_same_home_whatever_the_order_of_its_members() -> None:
    members = replicas(5)
    assert homes(members) == homes(members[::-1])


@pytest.mark.parametrize("size", [2, 5, 20])
def test_each_replica_has_about_its_share_of_the_keys(size: int) -> None:
    counts = Counter(homes(replicas(size)))
    assert len(counts) == size
    assert max(counts.values()) < 2 * len(KEYS) / size


@given(size=st.integers(1, 8), leaving=st.integers(0, 7), keys=st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_only_the_keys_of_a_replica_that_leaves_move(size: int, leaving: int, keys: list[int]) -> None:
    members = replicas(size + 1)
    gone = members[leaving % (size + 1)]
    staying = tuple(each for each in members if each is not gone)
    ring = Ring()
    ring.follow(members)
    before = [ring.home(key, lambda _: True) for key in keys]

    ring.follow(staying)

    after = [ring.home(key, lambda _: True) for key in keys]
    assert after == homes(staying, keys)
    for home, new in zip(before, after, strict=True):
        assert new is home or home is gone

    ring.follow(members)
    assert [ring.home(key, lambda _: True) for key in keys] == before


def test_few_keys_move_when_a_replica_joins_a_large_pool() -> None:
    members = replicas(20)
    moved = sum(before is not after for before, after in zip(homes(members[:19]), homes(members), strict=True))
    assert 0 < moved < 3 * len(KEYS) / 20


@given(
    weights=st.lists(st.sampled_from([1.0, 1.0, 1.0, 2.0, 0.5]), min_size=1, max_size=8),
    keys=st.lists(st.integers(0, 5), max_size=120),
    ends=st.lists(st.integers(0, 200), max_size=60),
    factor=st.sampled_from([1.0, 1.25, 1.5, 2.0]),
)
def test_no_replica_takes_a_request_above_its_bound(
    weights: list[float], keys: list[int], ends: list[int], factor: float
) -> None:
    members = tuple(replica(f"r{at}", weight=weight) for at, weight in enumerate(weights))
    ring = Ring()
    ring.follow(members)
    running: list[Replica] = []
    ending = iter(ends)

    for key in keys:
        home = ring.home(KEYS[key], bounds(members, factor, 1))
        assert home is not None, "somebody is always below the bound"
        home.in_flight += 1
        running.append(home)
        share = Fraction(factor) * len(running) / sum(map(Fraction, weights))
        assert home.in_flight <= math.ceil(share * Fraction(home.weight))
        if (at := next(ending, 200)) < len(running):
            running.pop(at).in_flight -= 1


def test_what_a_home_can_not_take_goes_to_the_same_next_one() -> None:
    members = replicas(4)
    ring = Ring()
    ring.follow(members)
    home = ring.home(KEYS[0], lambda _: True)

    seconds = {ring.home(KEYS[0], lambda each: each is not home) for _ in range(10)}

    assert len(seconds) == 1
    assert home not in seconds


def test_a_replica_may_run_a_few_requests_whatever_the_others_do() -> None:
    members = (replica("busy", load=3), replica("idle"))
    assert bounds(members, 1.25, 4)(members[0])
    assert not bounds(members, 1.25, 3)(members[0])


def test_only_candidates_are_taken() -> None:
    members = replicas(3)
    takes = bounds(members[:2], 2.0, 1)
    assert [takes(each) for each in members] == [True, True, False]


def test_nobody_is_looked_for_all_round_a_large_circle() -> None:
    ring = Ring()
    ring.follow(replicas(40))
    looks: list[Replica] = []

    def takes(each: Replica) -> bool:
        looks.append(each)
        return False

    assert ring.home(KEYS[0], takes) is None
    assert len(looks) == len(set(looks)) <= 40
    assert Ring().home(KEYS[0], takes) is None
