"""A running breaker takes over another policy, and what is quarantined stays so."""

from dataclasses import replace

from gateway.breaker.policy import BackOff, BreakerPolicy, OverBudget
from gateway.breaker.record import State

OVER = 1001.0


def test_what_is_quarantined_stays_so(world) -> None:
    world.trip()

    world.trust.reconfigure(replace(BreakerPolicy(), back_off=BackOff(first_s=1000)))

    assert world.state() is State.open
    world.pass_time(31.0)
    assert world.state() is State.half_open  # by the time that it was given


def test_what_trips_next_is_judged_and_kept_by_the_new_policy(world) -> None:
    world.trust.reconfigure(
        replace(BreakerPolicy(), over_budget=OverBudget(steps=1, window_s=10), back_off=BackOff(first_s=1000))
    )

    world.step(OVER)

    assert world.state() is State.open
    world.pass_time(500.0)
    assert world.state() is State.open


def test_evidence_is_kept_where_its_limits_stay(world) -> None:
    world.step(OVER, request_id="r1")
    world.at_s = 1.0
    world.step(OVER, request_id="r2")

    world.trust.reconfigure(replace(BreakerPolicy(), back_off=BackOff(first_s=1000)))
    world.at_s = 2.0
    world.step(OVER, request_id="r3")

    assert world.state() is State.open


def test_another_quarantine_pool_is_the_one_in_which_nothing_trips(world) -> None:
    world.trust.reconfigure(replace(BreakerPolicy(), quarantine_pool="slow"))

    world.step(1e9, pool="slow")
    assert world.state() is State.closed

    world.step(1e9, pool="quarantine")
    assert world.state() is State.open
