"""A tenant is let in while nothing is owed, told what it lacks and for how long, and shown what it has left."""

import pytest

from gateway.tenants.allowance import Allowance, Excess, Rate, Resource

LIMITS = {
    Resource.requests: Rate(1.0, 2.0),
    Resource.tokens: Rate(100.0, 1000.0),
    Resource.hook_us: Rate(1000.0, 5000.0),
}


def test_each_resource_has_its_own_limit_and_the_longest_wait_is_named() -> None:
    allowance = Allowance(LIMITS, 0.0)
    assert allowance.take(600.0, 0.0, 0.0) is None
    assert allowance.take(600.0, 0.0, 0.0) == Excess(Resource.tokens, pytest.approx(2.0))
    assert allowance.take(0.0, 0.0, 0.0) is None
    assert allowance.take(800.0, 0.0, 0.0) == Excess(Resource.tokens, pytest.approx(4.0))
    assert allowance.take(0.0, 0.0, 0.0) == Excess(Resource.requests, pytest.approx(1.0))


def test_a_request_that_is_not_let_in_costs_nothing() -> None:
    allowance = Allowance(LIMITS, 0.0)
    allowance.spend({Resource.tokens: 1500.0}, 0.0)
    before = allowance.levels(0.0)
    for _ in range(5):
        assert allowance.take(1.0, 0.0, 0.0) is not None
    assert allowance.levels(0.0) == before


def test_what_was_used_afterwards_keeps_the_next_one_out() -> None:
    allowance = Allowance(LIMITS, 0.0)
    assert allowance.take(0.0, 0.0, 0.0) is None
    allowance.spend({Resource.hook_us: 8000.0}, 0.0)
    assert allowance.take(0.0, 0.0, 0.0) == Excess(Resource.hook_us, pytest.approx(3.0))
    assert allowance.take(0.0, 0.0, 3.0) is None


def test_a_resource_without_a_limit_is_not_counted() -> None:
    allowance = Allowance({Resource.requests: Rate(1.0, 1.0)}, 0.0)
    allowance.spend({Resource.tokens: 1e9, Resource.hook_us: 1e9}, 0.0)
    assert allowance.take(1e9, 1e9, 0.0) is None
    assert not allowance.limits(Resource.tokens)


def test_the_headers_say_the_limit_what_remains_and_when_it_is_full_again() -> None:
    allowance = Allowance(LIMITS, 0.0)
    assert allowance.take(800.0, 6000.0, 0.0) is None
    assert allowance.header_lines(0.0).decode().splitlines() == [
        "x-ratelimit-limit-requests: 2",
        "x-ratelimit-remaining-requests: 1",
        "x-ratelimit-reset-requests: 1s",
        "x-ratelimit-limit-tokens: 1000",
        "x-ratelimit-remaining-tokens: 200",
        "x-ratelimit-reset-tokens: 8s",
        "x-ratelimit-limit-hook-us: 5000",
        "x-ratelimit-remaining-hook-us: 0",
        "x-ratelimit-reset-hook-us: 6s",
    ]


@pytest.mark.parametrize(
    ("rate", "reset"), [(Rate(10.0, 5.0), "100ms"), (Rate(0.01, 2.0), "1m40s"), (Rate(0.0002, 2.0), "1h23m20s")]
)
def test_times_are_spelled_as_in_openais_headers(rate: Rate, reset: str) -> None:
    allowance = Allowance({Resource.requests: rate}, 0.0)
    allowance.take(0.0, 0.0, 0.0)
    assert f"reset-requests: {reset}\r\n" in allowance.header_lines(0.0).decode()


def test_a_new_configuration_keeps_debts_and_forgets_what_is_no_longer_limited() -> None:
    allowance = Allowance(LIMITS, 0.0)
    allowance.spend({Resource.tokens: 1200.0, Resource.hook_us: 9000.0}, 0.0)
    allowance.reconfigure({Resource.tokens: Rate(10.0, 50.0)}, 0.0)
    assert allowance.levels(0.0) == {Resource.tokens: -200.0}
    assert allowance.take(1.0, 1e9, 0.0) == Excess(Resource.tokens, pytest.approx(20.1))
