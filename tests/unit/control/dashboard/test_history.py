"""What a pool did in the last minute and hour, out of totals that only grow."""

import pytest

from gateway.control.dashboard.history import (
    COLUMNS,
    REPLICA_COLUMNS,
    Figures,
    History,
    Latencies,
    PoolTotals,
    StepTotal,
    quantile,
    share_over,
)

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
    figures = noted(PoolTotals(ttft=[0, 0, 0, 0]), PoolTotals(ttft=[50, 49, 0, 1])).latencies

    assert figures.ttft == (50, 49, 0, 1)
    assert figures.ttft_p50_s == pytest.approx(0.1)
    assert figures.ttft_p99_s == pytest.approx(0.2)


def test_the_time_between_tokens_is_that_of_steps_the_longest_among_them() -> None:
    figures = noted(
        PoolTotals(steps={"r": StepTotal()}), PoolTotals(steps={"r": steps(100, 7000, 6000, 500, 90_000)})
    ).latencies

    assert figures.itl_p50_us == pytest.approx((700_000 - 90_000) / 99)
    assert figures.itl_p99_us == pytest.approx((700_000 - 90_000) / 99)
    assert (figures.forward_us, figures.hook_us) == (pytest.approx(6000), pytest.approx(500))


def test_without_steps_the_gaps_on_streams_stand_in_and_nothing_is_said_of_their_99th() -> None:
    figures = noted(PoolTotals(gaps_us={"r": 8000.0}), PoolTotals(gaps_us={"r": 9000.0, "s": 1.0})).latencies

    assert (figures.itl_p50_us, figures.itl_p99_us, figures.hook_us) == (9000.0, None, None)


def test_the_budget_is_used_by_the_mean_of_all_steps_whichever_replica_took_them() -> None:
    before = {"a": StepTotal(), "b": StepTotal()}
    after = {"a": steps(10, 1000, 0, 100, 1000), "b": steps(30, 1000, 0, 300, 1000)}

    totals = PoolTotals(steps=before), PoolTotals(steps=after)

    assert noted(*totals, budget_us=1000.0).latencies.budget_use == pytest.approx(0.25)
    assert noted(*totals).latencies.budget_use is None


def test_the_budget_is_hit_in_seconds_whose_mean_step_was_over_it() -> None:
    quiet, busy = StepTotal(10, 0.1, 0.0, 0.001, 0.01), StepTotal(20, 0.2, 0.0, 0.021, 0.01)
    totals = [PoolTotals(steps={"r": each}) for each in (StepTotal(), quiet, busy, busy)]

    assert noted(*totals, budget_us=1000.0).latencies.over_budget == 0.5
    assert noted(*totals).latencies.over_budget is None
    assert share_over([], 1000.0) is None


def test_an_engine_that_was_followed_by_another_counts_from_its_beginning() -> None:
    totals = [{"r": steps(100, 10, 5, 1, 10)}, {"r": StepTotal()}, {"r": steps(10, 20, 5, 2, 20)}]

    assert noted(*[PoolTotals(steps=each) for each in totals]).latencies.hook_us == pytest.approx(2.0)


def minute(*totals: PoolTotals) -> Latencies:
    """The last minute of the replica `r` after these totals, a second apart, with a budget of 1,000 µs."""
    history = History(BOUNDS_S)
    for second, total in enumerate(totals):
        history.note(1000.0 + second, {"p": total})
    found = history.latencies("p", "r", 1000.0)
    assert found is not None
    return found


def test_a_replica_has_a_minute_of_its_own() -> None:
    before = PoolTotals(steps={"r": StepTotal(), "s": StepTotal()}, first_bytes={"r": (0, 0, 0, 0)})
    mine, others = steps(100, 7000, 6000, 500, 90_000), steps(900, 1000, 900, 10, 1000)
    after = PoolTotals(steps={"r": mine, "s": others}, first_bytes={"r": (50, 49, 0, 1), "s": (900, 0, 0, 0)})

    found = minute(before, after)

    assert (found.hook_us, found.forward_us) == (pytest.approx(500), pytest.approx(6000))
    assert found.itl_p50_us == pytest.approx((700_000 - 90_000) / 99)
    assert (found.ttft_p50_s, found.ttft_p99_s) == (pytest.approx(0.1), pytest.approx(0.2))
    assert (found.budget_use, found.over_budget) == (pytest.approx(0.5), 0.0)


def test_a_replica_that_has_just_come_counts_from_its_first_second() -> None:
    assert minute(PoolTotals(), PoolTotals(), PoolTotals(first_bytes={"r": (0, 4, 0, 0)})).ttft == (0, 4, 0, 0)


def test_a_replica_without_steps_has_the_gaps_on_its_streams() -> None:
    found = minute(PoolTotals(gaps_us={"r": 8000.0}), PoolTotals(gaps_us={"r": 9000.0}))

    assert (found.itl_p50_us, found.itl_p99_us, found.over_budget) == (9000.0, None, None)


def test_a_replica_that_is_gone_is_forgotten_and_one_that_was_never_told_of_is_not_known() -> None:
    history = History(BOUNDS_S)
    history.note(1.0, {"p": PoolTotals(steps={"r": StepTotal()})})
    assert history.latencies("p", "r", None) is not None

    history.note(2.0, {"p": PoolTotals()})

    assert history.latencies("p", "r", None) is None
    assert history.latencies("q", "r", None) is None


def test_the_rows_of_a_replica_are_of_seconds_in_which_steps_ended() -> None:
    history = History(BOUNDS_S)
    first, second = steps(10, 7000, 6000, 500, 9000), steps(20, 7000, 6000, 500, 9000)
    for at, total in enumerate((StepTotal(), first, first, second)):
        history.note(float(at), {"p": PoolTotals(steps={"r": total, "idle": StepTotal()})})

    rows = history.replicas()["r"]

    assert [dict(zip(REPLICA_COLUMNS, row, strict=True)) for row in rows] == [
        {"at": at, "steps": 10, "forward_us": 6000.0, "hook_us": 500.0, "longest_us": 9000.0} for at in (1.0, 3.0)
    ]
    assert history.replicas(1) == {"r": rows[-1:]}


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
