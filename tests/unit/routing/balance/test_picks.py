import random
from collections import Counter

import pytest
from asks import replica, replicas

from gateway.routing.balance.picks import Best, PowerOfTwo, Weighted


def placed(count: int) -> tuple:
    members = replicas(count)
    for at, each in enumerate(members):
        each.at = at
    return members


def test_the_highest_score_is_taken() -> None:
    members = placed(3)
    assert Best().pick(members, [0.1, 0.9, 0.5]) is members[1]


def test_equals_take_turns() -> None:
    members = placed(4)
    best = Best()
    assert [best.pick(members, [1.0, 1.0, 0.2, 1.0]).at for _ in range(6)] == [0, 1, 3, 0, 1, 3]


def test_turns_go_on_where_candidates_come_and_go() -> None:
    members = placed(4)
    best = Best()
    assert best.pick(members, [0.0] * 4) is members[0]
    assert best.pick(members[2:], [0.0] * 2) is members[2]
    assert best.pick(members, [0.0] * 4) is members[3]
    assert best.pick(members, [0.0] * 4) is members[0]


def test_of_two_the_better_one_is_taken_and_only_two_are_scored() -> None:
    members = placed(10)
    power = PowerOfTwo(random.Random(1))
    first = Counter()
    for _ in range(200):
        two = power.sample(members)
        assert len(set(two)) == 2
        assert power.pick(two, [0.3, 0.7]) is two[1]
        first[two[0]] += 1
    assert len(first) == 10
    assert list(power.sample(members[:1])) == [members[0]]


@pytest.mark.parametrize(
    ("weights", "scores", "turns"),
    [
        ([1, 1, 1], [0, 0, 0], "abc" * 4),
        ([5, 1, 1], [0, 0, 0], "aabacaa" * 2),
        ([1, 1], [1.0, 0.5], "abaaba"),
        ([2, 1], [0.5, 1.0], "abab"),
        ([1, 1], [1.0, 0.0], "aaaa"),
    ],
)
def test_turns_are_in_proportion_to_weight_and_score(weights: list[float], scores: list[float], turns: str) -> None:
    members = tuple(replica(name, weight=weight) for name, weight in zip("abc", weights, strict=False))
    pick = Weighted()
    assert "".join(pick.pick(members, scores).name for _ in turns) == turns


def test_a_replica_that_comes_back_is_owed_nothing() -> None:
    members = replicas(2)
    pick = Weighted()
    for _ in range(100):
        pick.pick(members[:1], [0.0])
    assert [pick.pick(members, [0.0, 0.0]).name for _ in range(4)] == ["r0", "r1", "r0", "r1"]
