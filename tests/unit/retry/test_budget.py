"""A budget lets through a share of the traffic, and little more than that whatever the order of things."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.retry.budget import WINDOW_S, Budget, BudgetPolicy


class Traffic:
    """Time and answered requests, both moved by the test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.answered = 0

    def budget(self, ratio: float, min_per_s: float) -> Budget:
        return Budget(BudgetPolicy(ratio, min_per_s), lambda: self.answered, lambda: self.now_s)


def taken(budget: Budget, tries: int = 1000) -> int:
    return sum(budget.take() for _ in range(tries))


@pytest.mark.parametrize(
    ("ratio", "min_per_s", "answered", "retries"),
    [(0.2, 0.0, 100, 20), (0.0, 3.0, 100, 30), (0.2, 3.0, 100, 50), (0.0, 0.0, 100, 0), (1.0, 0.0, 7, 7)],
)
def test_retries_are_a_share_of_the_traffic_and_a_few_more(
    ratio: float, min_per_s: float, answered: int, retries: int
) -> None:
    traffic = Traffic()
    budget = traffic.budget(ratio, min_per_s)
    traffic.answered += answered
    assert taken(budget) == retries
    assert budget.left < 1.0


def test_what_was_used_comes_back_with_time_and_traffic() -> None:
    traffic = Traffic()
    budget = traffic.budget(0.1, 1.0)
    assert taken(budget) == 10
    traffic.now_s += 2.0
    assert taken(budget) == 2
    traffic.answered += 30
    assert taken(budget) == 3


def test_a_quiet_hour_saves_up_no_more_than_a_window() -> None:
    traffic = Traffic()
    budget = traffic.budget(0.2, 3.0)
    traffic.now_s += 3600.0
    assert taken(budget) == 3.0 * WINDOW_S


def test_of_the_traffic_of_an_hour_only_the_last_seconds_count() -> None:
    traffic = Traffic()
    budget = traffic.budget(0.2, 0.0)
    traffic.answered += 3600
    traffic.now_s += 3600.0
    assert taken(budget) == 2  # one request a second, for ten seconds


@given(
    st.floats(0.0, 1.0),
    st.floats(0.0, 10.0),
    st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(0, 500), st.integers(0, 50)), max_size=50),
)
def test_no_order_of_events_gets_more_than_the_share(
    ratio: float, min_per_s: float, events: list[tuple[float, int, int]]
) -> None:
    traffic = Traffic()
    budget = traffic.budget(ratio, min_per_s)
    retries = 0
    for passed_s, answered, tries in events:
        traffic.now_s += passed_s
        traffic.answered += answered
        retries += taken(budget, tries)
        most = ratio * traffic.answered + min_per_s * (traffic.now_s + WINDOW_S)
        assert retries <= most + 1e-6 * (1.0 + most)
        assert budget.left >= 0.0


def test_a_clock_that_stands_and_a_count_that_falls_do_no_harm() -> None:
    traffic = Traffic()
    budget = traffic.budget(1.0, 0.0)
    traffic.answered = 5
    assert taken(budget) == 5
    traffic.answered = 0  # the counters were reset
    assert taken(budget) == 0
    traffic.answered = 2
    assert taken(budget) == 2
