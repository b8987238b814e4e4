import pytest

from gateway.routing.drain import DrainRate


@pytest.mark.parametrize("per_s", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("for_s", [4.0, 10.0, 100.0])
def test_a_steady_rate_is_told_from_early_on(per_s: float, for_s: float) -> None:
    rate = DrainRate()
    now_s = 1000.0
    for _ in range(int(per_s * for_s)):
        rate.count(now_s)
        now_s += 1 / per_s

    assert rate.per_s(now_s) == pytest.approx(per_s, rel=0.3)


def test_nothing_observed_is_no_rate() -> None:
    assert DrainRate().per_s(5.0) == 0.0


def test_a_rate_follows_its_changes_within_half_a_minute() -> None:
    rate = DrainRate()
    now_s = 0.0
    for gap_s in [0.1] * 600 + [1.0] * 30:
        rate.count(now_s)
        now_s += gap_s
    assert rate.per_s(now_s) == pytest.approx(1.0, rel=0.5)

    assert rate.per_s(now_s + 60) < 0.01


def test_many_at_one_moment_are_not_an_endless_rate() -> None:
    rate = DrainRate()
    for _ in range(100):
        rate.count(7.0)

    assert rate.per_s(7.0) == pytest.approx(100, rel=0.1)
