"""What a pool did in the last minute and hour, out of totals that only grow."""

import pytest

from gateway.control.dashboard.history import COLUMNS, Figures, History, PoolTotals, StepTotal, quantile

BOUNDS_S = [0.1, 0.2, 0.4]


def noted(*totals: PoolTotals, budget_us: float | None = None) -> Figures:
    """The figures after these totals, a second apart."""
    history = History(BOUNDS_S)
    for second, total in enumerate(totals):
        history.note(1000.0 + second, {"p": total})
    figures = history.figures("p", budget_us)
    assert figures is not None
    return figures


def steps(count: int, step_us: float, forward_us: float, hook_us: float, longest_us: float) -> StepTotal:
    return StepTotal(count, count * step_us / 1e6, count * forward_us / 1e6, count * hook_us / 1e6, longest_us / 1e6)


def test_nothing_is_known_of_a_pool_before_its_first_second_has_passed() -> None:
    history = History(BOUNDS_S)
    assert history.figures("p", None) is None

    history.note(1000.0, {"p": PoolTotals(requests=7)})

    assert history.figures("p", None) is None
    assert history.seconds("p") == []


def test_counts_are_of_the_minute_and_rates_of_a_second() -> None:
    figures = noted(PoolTotals(requests=100), PoolTotals(requests=104, failed=1, spills=2, rejects=3), PoolTotals(108))

    assert (figures.per_s, figures.failed, figures.spills, figures.rejects) == (4.0, 1.0, 2.0, 3.0)


def test_a_counter_that_began_again_is_no_negative_rate() -> None:
    assert noted(PoolTotals(requests=100), PoolTotals(requests=3)).per_s == 0.0


def test_times_to_first_byte_are_read_off_their_buckets() -> None:
    figures = noted(PoolTotals(ttft=[0, 0, 0, 0]), PoolTotals(ttft=[50, 49, 0, 1]))

    assert figures.ttft_p50_s == pytest.approx(0.1)
    assert figures.ttft_p99_s == pytest.approx(0.2)


def test_the_time_between_tokens_is_that_of_steps_the_longest_among_them() -> None:
    figures = noted(PoolTotals(steps={"r": StepTotal()}), PoolTotals(steps={"r": steps(100, 7000, 6000, 500, 90_000)}))

    assert figures.itl_p50_us == pytest.approx((700_000 - 90_000) / 99)
    assert figures.itl_p99_us == pytest.approx((700_000 - 90_000) / 99)
    assert (figures.forward_us, figures.hook_us) == (pytest.approx(6000), pytest.approx(500))


def test_without_steps_the_gaps_on_streams_stand_in_and_nothing_is_said_of_their_99th() -> None:
    figures = noted(PoolTotals(gap_us=8000.0), PoolTotals(gap_us=9000.0))

    assert (figures.itl_p50_us, figures.itl_p99_us, figures.hook_us) == (9000.0, None, None)


def test_the_budget_is_used_by_the_mean_of_all_steps_whichever_replica_took_them() -> None:
    before = {"a": StepTotal(), "b": StepTotal()}
    after = {"a": steps(10, 1000, 0, 100, 1000), "b": steps(30, 1000, 0, 300, 1000)}

    assert noted(PoolTotals(steps=before), PoolTotals(steps=after), budget_us=1000.0).budget_use == pytest.approx(0.25)
    assert noted(PoolTotals(steps=before), PoolTotals(steps=after)).budget_use is None


def test_an_engine_that_was_followed_by_another_counts_from_its_beginning() -> None:
    totals = [{"r": steps(100, 10, 5, 1, 10)}, {"r": StepTotal()}, {"r": steps(10, 20, 5, 2, 20)}]

    assert noted(*[PoolTotals(steps=each) for each in totals]).hook_us == pytest.approx(2.0)


def test_a_minute_is_kept_by_seconds_and_an_hour_by_minutes() -> None:
    history = History(BOUNDS_S)
    for second in range(4000):
        history.note(float(second), {"p": PoolTotals(requests=second * 2, in_flight=3)})

    assert [point.at for point in history.seconds("p")] == [float(second) for second in range(3940, 4000)]
    assert len(history.minutes("p")) == 60
    assert {point.requests for point in history.minutes("p")} == {2.0}
    assert {point.in_flight for point in history.minutes("p")} == {3.0}


def test_a_pool_that_is_gone_is_forgotten() -> None:
    history = History(BOUNDS_S)
    history.note(1.0, {"p": PoolTotals(), "q": PoolTotals()})
    history.note(2.0, {"q": PoolTotals()})

    assert list(history.document()) == ["q"]


def test_a_row_has_its_values_in_the_order_of_the_columns() -> None:
    history = History(BOUNDS_S)
    history.note(1.0, {"p": PoolTotals()})
    history.note(2.0, {"p": PoolTotals(requests=5, waiting=2)})

    row = dict(zip(COLUMNS, history.document()["p"]["seconds"][0], strict=True))

    assert row.items() >= {"at": 2.0, "requests": 5.0, "waiting": 2, "hook_us": None}.items()


@pytest.mark.parametrize(
    ("weighted", "share", "value"),
    [
        ([], 0.5, None),
        ([(7.0, 1.0)], 0.99, 7.0),
        ([(1.0, 99.0), (100.0, 1.0)], 0.5, 1.0),
        ([(100.0, 2.0), (1.0, 98.0)], 0.99, 100.0),
    ],
)
def test_a_quantile_is_the_value_below_which_that_share_lies(
    weighted: list[tuple[float, float]], share: float, value: float | None
) -> None:
    assert quantile(weighted, share) == value
