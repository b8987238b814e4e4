import random

from gateway.state.backoff import Backoff


def test_pauses_double_up_to_the_longest_and_are_spread_downwards() -> None:
    backoff = Backoff(0.1, 1.0, random.Random(1))
    for limit in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert limit / 2 <= backoff.next_pause_s() <= limit
    for _ in range(2000):
        assert backoff.next_pause_s() <= 1.0
    backoff.reset()
    assert backoff.next_pause_s() <= 0.1
