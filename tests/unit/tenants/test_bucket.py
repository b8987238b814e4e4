"""A bucket gives no more than its rate and burst allow, whatever is taken, owed or given back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tenants.bucket import Bucket


def test_a_full_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    bucket = Bucket(rate=2.0, burst=4.0, now_s=0.0)
    for _ in range(4):
        assert bucket.wait_s(1.0, 0.0) == 0.0
        bucket.spend(1.0, 0.0)
    assert bucket.wait_s(1.0, 0.0) == pytest.approx(0.5)
    assert bucket.wait_s(1.0, 0.5) == 0.0
    assert bucket.full_in_s(0.5) == pytest.approx(1.5)


def test_what_is_more_than_it_holds_may_be_taken_when_it_is_full() -> None:
    bucket = Bucket(rate=1.0, burst=10.0, now_s=0.0)
    assert bucket.wait_s(1000.0, 0.0) == 0.0
    bucket.spend(1.0, 0.0)
    assert bucket.wait_s(1000.0, 0.0) == pytest.approx(1.0)


def test_debts_are_paid_off_by_the_rate_and_have_an_end() -> None:
    bucket = Bucket(rate=2.0, burst=4.0, now_s=0.0)
    bucket.spend(14.0, 0.0)
    assert bucket.level(0.0) == -10.0
    assert bucket.wait_s(1.0, 0.0) == pytest.approx(5.5)
    bucket.spend(1e12, 0.0)
    assert bucket.wait_s(0.0, 0.0) == pytest.approx(60.0)


def test_what_is_given_back_never_overfills_it() -> None:
    bucket = Bucket(rate=1.0, burst=3.0, now_s=0.0)
    bucket.spend(-50.0, 0.0)
    assert bucket.level(0.0) == 3.0


def test_a_clock_that_goes_back_takes_nothing() -> None:
    bucket = Bucket(rate=1.0, burst=3.0, now_s=10.0)
    bucket.spend(2.0, 10.0)
    assert bucket.level(5.0) == 1.0
    assert bucket.level(11.0) == 2.0


def test_other_limits_keep_what_is_owed() -> None:
    bucket = Bucket(rate=1.0, burst=3.0, now_s=0.0)
    bucket.spend(5.0, 0.0)
    bucket.reconfigure(10.0, 100.0, 0.0)
    assert bucket.level(0.0) == -2.0
    assert bucket.level(1.0) == 8.0
    bucket.reconfigure(1.0, 2.0, 1.0)
    assert bucket.level(1.0) == 2.0


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_what_gives_nothing_is_no_bucket(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        Bucket(rate, burst, 0.0)


@given(
    rate=st.floats(0.1, 1000.0),
    burst=st.floats(1.0, 1000.0),
    asks=st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 20.0)), max_size=60),
)
def test_no_more_is_let_through_than_burst_and_rate_allow(
    rate: float, burst: float, asks: list[tuple[float, float]]
) -> None:
    now_s, taken = 0.0, 0.0
    bucket = Bucket(rate, burst, now_s)
    for passed_s, amount in asks:
        now_s += passed_s
        wanted = min(amount, burst)
        if bucket.wait_s(wanted, now_s) == 0.0:
            bucket.spend(wanted, now_s)
            taken += wanted
        assert taken <= burst + rate * now_s + 1e-6 * (1.0 + taken)
