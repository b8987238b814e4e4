"""A cost per token that rises with length, told from noise and from levels."""

import math
import random
from collections.abc import Callable

import pytest

from gateway.breaker.policy import Slope
from gateway.breaker.record import State
from gateway.breaker.slope import SlopeWatch, line_through, unexplained_by_levels
from gateway.breaker.trip import Cause

BUDGET_US = 1000.0
Cost = Callable[[random.Random, int], float]


def noisy(level: Callable[[int], float], noise: float) -> Cost:
    return lambda chance, token: max(0.0, level(token) * (1.0 + chance.gauss(0.0, noise)))


def first_rise(cost: Cost, tokens: int, seed: int) -> float | None:
    """The cost of the token at which it is found."""
    watch, chance = SlopeWatch(Slope()), random.Random(seed)
    for token in range(tokens):
        own_us = cost(chance, token)
        if watch.add("r", own_us, BUDGET_US) is not None:
            return own_us
    return None


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("per_token_us", [0.1, 0.2, 0.5, 1.0, 2.0])
def test_a_mask_that_slows_down_with_each_token_is_found_below_the_budget(per_token_us: float, noise: float) -> None:
    for seed in range(5):
        found_us = first_rise(noisy(lambda token: 40.0 + per_token_us * token, noise), 12_000, seed)
        assert found_us is not None
        assert found_us < BUDGET_US


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "cost",
    [
        pytest.param(noisy(lambda _: 900.0, 0.0), id="constant, just below the budget"),
        pytest.param(noisy(lambda _: 600.0, 0.5), id="constant and noisy"),
        pytest.param(lambda chance, _: 400.0 * math.exp(chance.gauss(0.0, 0.8)), id="long tail"),
        pytest.param(noisy(lambda token: 250.0 if token < 300 else 900.0, 0.1), id="one step up"),
        pytest.param(noisy(lambda token: (250.0, 500.0, 850.0)[min(token // 150, 2)], 0.1), id="two steps up"),
        pytest.param(noisy(lambda token: (210.0, 400.0, 600.0, 850.0)[min(token // 120, 3)], 0.0), id="three steps up"),
        pytest.param(noisy(lambda token: 800.0 if token // 70 % 2 else 250.0, 0.1), id="to and fro"),
        pytest.param(noisy(lambda token: 900.0 - 0.5 * min(token, 1300), 0.05), id="falling"),
        pytest.param(noisy(lambda token: 210.0 + 0.06 * token, 0.0), id="rising, but not to the budget in time"),
        pytest.param(noisy(lambda token: 760.0 + 0.05 * token, 0.0), id="rising by little"),
        pytest.param(noisy(lambda token: 20.0 + 0.3 * min(token, 500), 0.0), id="rising while it is cheap"),
        pytest.param(noisy(lambda token: 40.0 + 0.03 * token, 0.0), id="rising far below the budget"),
        pytest.param(noisy(lambda token: 900.0 - 600.0 * math.exp(-token / 100.0), 0.0), id="rising to a level"),
    ],
)
def test_no_slope_is_seen_in(cost: Cost, seed: int) -> None:
    assert first_rise(cost, 3000, seed) is None


def test_a_fast_rise_trips_by_its_level_first(world) -> None:
    for token in range(200):
        world.step(100.0 + 40.0 * token)

    assert world.verdict().record.trip.cause is Cause.over_budget


def test_a_slope_opens_the_breaker_before_the_level_does(world) -> None:
    for token in range(2000):
        world.step(40.0 + 0.5 * token)
        world.at_s += 0.02

    trip = world.verdict().record.trip
    assert trip.cause is Cause.slope
    assert trip.observed < trip.limit == BUDGET_US
    assert trip.count >= Slope().least_steps


def test_requests_are_followed_one_by_one(world) -> None:
    """The later ones of a hundred are dearer: that is no slope of any of them."""
    for number in range(100):
        for _ in range(20):
            world.step(250.0 + 6.0 * number, request_id=f"r{number}")

    assert world.state() is State.closed


def test_what_has_ended_is_forgotten_and_what_runs_is_bounded() -> None:
    watch = SlopeWatch(Slope(requests=100))
    for number in range(1000):
        watch.add(f"r{number}", 500.0, BUDGET_US)
    assert len(watch) == 100

    watch.forget("r999")
    watch.forget("r0")
    assert len(watch) == 99


def test_memory_of_one_request_does_not_grow_with_its_length() -> None:
    watch = SlopeWatch(Slope())
    for token in range(50_000):
        watch.add("r", 500.0 + token % 7, BUDGET_US)

    (track,) = watch._tracks.values()
    assert len(track.medians) <= 16
    assert len(track.filling) < 50_000 / 8


def test_a_line_explains_what_lies_on_it() -> None:
    assert line_through([1.0, 3.0, 5.0, 7.0]) == pytest.approx((2.0, 1.0, 1.0))
    assert line_through([2.0, 2.0, 2.0])[2] == 0.0


def test_levels_explain_what_stands_on_them() -> None:
    stairs = [1.0, 1.0, 1.0, 4.0, 4.0, 5.0, 5.0, 5.0]
    assert unexplained_by_levels(stairs, 3) == pytest.approx(0.0)
    assert unexplained_by_levels(stairs, 2) > 0.0
    assert unexplained_by_levels([float(value) for value in range(16)], 4) == pytest.approx(1 / 16, abs=0.01)
