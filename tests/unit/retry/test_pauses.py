import random

from gateway.retry.pauses import Pauses


def test_pauses_double_up_to_the_longest_and_are_spread_downwards() -> None:
    pauses = Pauses(0.1, 1.0, random.Random(1))
    for limit in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert limit / 2 <= pauses.next_s() <= limit
    for _ in range(2000):
        assert pauses.next_s() <= 1.0
    pauses.reset()
    assert pauses.next_s() <= 0.1
