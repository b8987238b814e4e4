"""What opens a signature's breaker, and what comes close to it and does not."""

from collections.abc import Callable

import pytest

from gateway.breaker.policy import BreakerPolicy, OverBudget
from gateway.breaker.record import State
from gateway.breaker.transitions import Publish
from gateway.breaker.trip import Cause
from gateway.hookcost.observation import Limit

OVER, HARD = 1001.0, 100_001.0
Story = Callable[..., None]


def steps(world, *steps: tuple[float, float], **origin: object) -> None:
    """Steps as (moment, µs), each of a request of its own."""
    for number, (at_s, own_us) in enumerate(steps):
        world.at_s = at_s
        world.step(own_us, **{"request_id": f"r{number}", **origin})


TRIPS: dict[str, tuple[Cause, Story]] = {
    "three steps over budget": (Cause.over_budget, lambda w: steps(w, (0, OVER), (1, OVER), (2, OVER))),
    "three at the two ends of the window": (Cause.over_budget, lambda w: steps(w, (0, OVER), (5, OVER), (10, OVER))),
    "cheap ones in between": (
        Cause.over_budget,
        lambda w: steps(w, (0, OVER), (1, 5), (2, OVER), (3, 1000), (4, OVER)),
    ),
    "three steps of one request, read at one moment": (
        Cause.over_budget,
        lambda w: steps(w, (1, OVER), (1, OVER), (1, OVER), request_id="r1"),
    ),
    "on several replicas": (
        Cause.over_budget,
        lambda w: [w.step(OVER, replica=f"gpu-{number}", request_id=f"r{number}") for number in range(3)],
    ),
    "one step over the hard limit": (Cause.hard_limit, lambda w: w.step(HARD)),
    "a hard limit without a budget": (Cause.hard_limit, lambda w: w.step(HARD, budget_us=None)),
    "a compilation over its limit": (Cause.compile, lambda w: w.compile(500.1)),
    "the engine's watchdog, twice": (Cause.aborts, lambda w: [w.offence(Limit.soft), w.offence(Limit.soft)]),
    "the engine's watchdog over our hard limit": (Cause.hard_limit, lambda w: w.offence(Limit.hard, own_us=HARD)),
    "a grammar that timed out, twice": (Cause.aborts, lambda w: [w.offence(Limit.compile), w.offence(Limit.compile)]),
}


@pytest.mark.parametrize(("cause", "story"), TRIPS.values(), ids=TRIPS.keys())
def test_it_opens_by(world, cause: Cause, story: Story) -> None:
    story(world)

    record = world.verdict().record
    assert (record.state, record.trip.cause) == (State.open, cause)
    assert [(told.tripped, told.publish) for told in world.told] == [(True, Publish.force)]


def waits_in_turn(world) -> None:
    """A grammar holds the compiler; two requests of another time out behind it."""
    world.offence(Limit.compile, limit_us=10e6, signature="s1-bomb")
    for number in range(2):
        world.at_s += 0.5
        world.offence(Limit.compile, limit_us=10e6, request_id=f"r{number}")


NEAR_MISSES: dict[str, Story] = {
    "two steps over budget": lambda w: steps(w, (0, OVER), (1, OVER)),
    "three that the window does not hold": lambda w: steps(w, (0, OVER), (5, OVER), (10.1, OVER)),
    "any number at the budget": lambda w: steps(w, *[(number, 1000.0) for number in range(50)]),
    "one step of three requests": lambda w: steps(w, (1, OVER), (1, OVER), (1, OVER)),
    "a step at the hard limit": lambda w: w.step(100_000.0),
    "no budget and no hard limit": lambda w: steps(
        w, *[(number, 1e9) for number in range(5)], budget_us=None, hard_limit_us=None
    ),
    "in quarantine": lambda w: steps(w, *[(number, HARD) for number in range(5)], pool="quarantine"),
    "without hook work": lambda w: steps(w, *[(number, HARD) for number in range(5)], costly=False),
    "a compilation at its limit": lambda w: w.compile(500.0),
    "a compilation where there is no limit": lambda w: w.compile(1e6, limit_ms=None),
    "a compilation in quarantine": lambda w: w.compile(501.0, pool="quarantine"),
    "a compilation of nothing": lambda w: w.compile(501.0, costly=False),
    "the engine's watchdog, once": lambda w: w.offence(Limit.hard),
    "ends that were asked for": lambda w: [w.offence(Limit.asked) for _ in range(5)],
    "the watchdog about plain requests": lambda w: [w.offence(Limit.hard, costly=False) for _ in range(5)],
    "grammars that waited behind another": waits_in_turn,
}


@pytest.mark.parametrize("story", NEAR_MISSES.values(), ids=NEAR_MISSES.keys())
def test_it_does_not_open_by(world, story: Story) -> None:
    story(world)

    assert world.verdict() is None
    assert world.state() is State.closed
    assert not world.told


def test_two_offences_far_apart_are_not_enough(world) -> None:
    world.offence(Limit.hard)
    world.at_s += 600.1
    world.offence(Limit.hard)

    assert world.verdict() is None


def test_the_window_moves_on(world) -> None:
    steps(world, (0, OVER), (1, OVER), (20, OVER), (21, OVER))
    assert world.verdict() is None

    steps(world, (22, OVER))
    assert world.verdict() is not None


def test_a_trip_names_the_worst_step_of_its_window(world) -> None:
    steps(world, (0, 90_000), (20, 2000), (21, 5000), (22, 3000))

    trip = world.verdict().record.trip
    assert (trip.observed, trip.limit, trip.count, trip.window_s, trip.hook) == (5000, 1000, 3, 10, "grammar_fill")
    assert (trip.tenant, trip.pool, trip.replica, trip.request_id) == ("acme", "interactive", "gpu-1", "r3")


@pytest.mark.parametrize(("steps_each_second", "trips"), [(0, True), (250, True), (301, False), (5000, False)])
def test_three_among_thousands_are_not_what_the_signature_does(world, steps_each_second: int, trips: bool) -> None:
    for second in range(100):
        world.at_s = float(second)
        if second % 5 == 0 and not world.told:
            world.step(OVER, request_id=f"r{second}")
        world.rollup(steps_each_second)

    assert (world.verdict() is not None) is trips


def test_one_in_a_hundred_is_what_a_busy_signature_does(world) -> None:
    for second in range(20):
        world.at_s = float(second)
        world.rollup(5000)
        for number in range(50):
            world.step(OVER, request_id=f"r{number}", replica=f"gpu-{number}")

    assert world.verdict().record.trip.cause is Cause.over_budget


def test_signatures_do_not_add_up(world) -> None:
    for number in range(30):
        world.step(OVER, signature=f"s1-{number % 15}")

    assert not world.told


def test_an_open_one_is_not_tripped_again_by_what_still_runs(world) -> None:
    world.trip()
    world.trip(request_id="r2")
    world.offence(Limit.hard, own_us=HARD)
    world.compile(9999.0)

    assert len(world.told) == 1
    assert world.verdict().record.trips == 1


def test_what_is_enough_is_the_policys_to_say(make_world) -> None:
    world = make_world(over_budget=OverBudget(steps=1))
    world.step(OVER)

    assert world.verdict() is not None


def test_a_policy_without_quarantine_spares_no_pool(make_world) -> None:
    world = make_world(quarantine_pool=None)
    world.step(HARD, pool="quarantine")

    assert world.verdict() is not None
    assert BreakerPolicy().quarantine_pool == "quarantine"
