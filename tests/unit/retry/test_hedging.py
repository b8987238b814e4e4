"""When a second replica is asked."""

import pytest

from gateway.retry.hedging import FirstBytes, HedgePolicy, Hedging, quantile_of

BOUNDS = [0.1, 0.2, 0.5, 1.0]


class World:
    """First bytes by bucket, answered requests and a clock, moved by the test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.counts = [0] * 5
        self.answered = 0

    def first_bytes(self) -> FirstBytes:
        return FirstBytes(BOUNDS, lambda: self.counts, lambda: self.now_s)

    def hedging(self, policy: HedgePolicy) -> Hedging:
        return Hedging(policy, self.first_bytes(), lambda: self.answered, lambda: self.now_s)


@pytest.mark.parametrize(
    ("counts", "quantile", "seconds"),
    [
        ([100, 0, 0, 0, 0], 0.5, 0.05),
        ([100, 0, 0, 0, 0], 0.95, 0.095),
        ([50, 50, 0, 0, 0], 0.95, 0.19),
        ([90, 0, 10, 0, 0], 0.95, 0.35),
        ([0, 0, 0, 100, 0], 0.5, 0.75),
        ([50, 0, 0, 0, 50], 0.95, None),  # beyond all bounds
        ([19, 0, 0, 0, 0], 0.5, None),  # too few to tell
    ],
)
def test_a_quantile_is_read_between_the_bounds(counts: list[int], quantile: float, seconds: float | None) -> None:
    found = quantile_of(BOUNDS, counts, quantile)
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_old_times_are_forgotten() -> None:
    world = World()
    first_bytes = world.first_bytes()
    world.counts = [100, 0, 0, 0, 0]
    assert first_bytes.quantile_s(0.95) == pytest.approx(0.095)
    for _ in range(2):
        world.now_s += 11.0
        world.counts = [world.counts[0], 0, world.counts[2] + 100, 0, 0]
        first_bytes.quantile_s(0.95)
    assert first_bytes.quantile_s(0.5) == pytest.approx(0.35)


def test_a_quantile_that_is_known_is_kept_for_a_while_and_one_that_is_not_is_looked_for_again() -> None:
    world = World()
    first_bytes = world.first_bytes()
    assert first_bytes.quantile_s(0.5) is None
    world.counts = [100, 0, 0, 0, 0]
    assert first_bytes.quantile_s(0.5) == pytest.approx(0.05)
    world.counts = [100, 0, 0, 900, 0]
    assert first_bytes.quantile_s(0.5) == pytest.approx(0.05)


@pytest.mark.parametrize(("after_s", "found"), [(0.5, 0.5), (None, None)])
def test_without_times_only_a_fixed_delay_is_known(after_s: float | None, found: float | None) -> None:
    assert World().hedging(HedgePolicy(after_s)).after_s() == found


def test_hedges_are_a_share_of_the_answered_requests_and_one_to_begin_with() -> None:
    world = World()
    hedging = world.hedging(HedgePolicy(0.5, max_share=0.05))
    assert [hedging.take() for _ in range(3)] == [True, False, False]
    world.answered += 100
    assert sum(hedging.take() for _ in range(20)) == 5
