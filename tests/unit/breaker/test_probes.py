"""The way back: single probes at growing intervals, judged on what they cost."""

from collections.abc import Callable

import pytest

from gateway.breaker.policy import Limits, Probing
from gateway.breaker.record import Kind, State
from gateway.breaker.trip import Cause
from gateway.hookcost.observation import Limit

QUARANTINE = {"pool": "quarantine", "budget_us": None, "hard_limit_us": None, "request_id": "p"}


def test_it_stays_in_quarantine_while_open_and_offers_no_probe(world) -> None:
    world.trip()
    world.pass_time(29.0)

    verdict = world.verdict()
    assert (verdict.record.state, verdict.retry_after_s, verdict.probe) == (State.open, 1, None)


def test_when_the_wait_is_over_the_next_request_may_be_a_probe(world) -> None:
    world.trip()
    world.at_s += 30.0

    verdict = world.verdict()
    assert verdict.record.state is State.half_open
    assert verdict.probe.signature == "s1-a"
    assert verdict.probe.ttl_s > world.policy.probing.longest_s + world.policy.probing.settle_s


def test_the_wait_ends_without_any_request(world) -> None:
    world.trip()
    world.pass_time(30.0)

    assert world.state() is State.half_open
    assert world.told[-1].record.since == world.told[0].record.until


def test_enough_good_probes_close_it(world) -> None:
    world.half_open()
    for number in range(2):
        world.good_probe(f"p{number}")
        assert world.state() is State.half_open
    world.good_probe("p2")

    assert world.state() is State.closed
    assert world.verdict() is None


def test_probes_come_at_growing_intervals(world) -> None:
    world.half_open()
    gaps = []
    for number in range(2):
        world.good_probe(f"p{number}")
        ended_s = world.at_s
        while (verdict := world.verdict()).probe is None:
            assert verdict.retry_after_s >= 1
            world.pass_time(0.5)
        gaps.append(world.at_s - ended_s)

    assert gaps == pytest.approx([4.0, 8.0], abs=1.5)


def test_one_probe_at_a_time(world) -> None:
    world.half_open()
    assert world.begin_probe("p1")

    world.pass_time(5.0)
    assert world.verdict().probe is None
    assert not world.trust.probe_leased("s1-a", "p2")


def test_of_many_requests_one_is_offered_and_the_next_a_while_later_if_it_got_no_lease(world) -> None:
    world.half_open()
    assert [world.verdict().probe is not None for _ in range(4)] == [True, False, False, False]

    world.at_s += 1.0
    assert world.verdict().probe is not None


def test_without_a_lease_nothing_is_judged(world) -> None:
    world.half_open()
    world.verdict()
    world.step(1e9, request_id="p")
    world.trust.finished("p", "s1-a", answered=True, watched=True)
    world.pass_time(70.0)

    assert (world.state(), world.told[-1].record.probes) == (State.half_open, 0)


def test_a_lease_that_comes_too_late_is_not_taken(world) -> None:
    world.half_open()
    world.trust.pin(Kind.signature, "s1-a", "kim", "enough")

    assert not world.trust.probe_leased("s1-a", "p")
    assert not world.trust.probe_leased("s1-unknown", "p")


BAD: dict[str, tuple[Cause, Callable[..., None]]] = {
    "one step over the hard limit": (Cause.hard_limit, lambda w: w.step(100_001, **QUARANTINE)),
    "steps over the budget of its own pool": (
        Cause.over_budget,
        lambda w: [w.step(1500, **QUARANTINE) for _ in range(3)],
    ),
    "a slope": (Cause.slope, lambda w: [w.step(40 + 0.5 * token, **QUARANTINE) for token in range(1500)]),
    "the engine's watchdog": (Cause.aborts, lambda w: w.offence(Limit.soft, **QUARANTINE)),
    "a compilation over the limit": (Cause.compile, lambda w: w.compile(501, **QUARANTINE)),
    "the death of its replica": (
        Cause.crash,
        lambda w: w.trust.replica_died("gpu-q", [w.attempt(1.0, **QUARANTINE)]),
    ),
}


@pytest.mark.parametrize(("cause", "story"), BAD.values(), ids=BAD.keys())
def test_a_bad_probe_opens_it_again_for_longer(world, cause: Cause, story: Callable[..., None]) -> None:
    world.half_open()
    world.good_probe("first")
    world.pass_time(10.0)
    assert world.begin_probe("p")
    story(world)

    record = world.verdict().record
    assert (record.state, record.trip.cause, record.trips) == (State.open, cause, 2)
    assert record.until - record.since == 60.0
    assert record.trip.pool == "interactive"
    assert (record.trip.budget_us, record.trip.hard_limit_us) == (1000.0, 100_000.0)


NOT_BAD: dict[str, Callable[..., None]] = {
    "two steps over the budget among many": lambda w: [w.step(us, **QUARANTINE) for us in (1500, 1500, 10, 10, 10)],
    "another request of the signature": lambda w: [w.step(1e6, **(QUARANTINE | {"request_id": "x"})) for _ in range(9)],
    "an end that was asked for": lambda w: w.offence(Limit.asked, **QUARANTINE),
    "a watchdog about another": lambda w: w.offence(Limit.hard, **(QUARANTINE | {"request_id": "x"})),
    "a compilation within the limit": lambda w: w.compile(499, **QUARANTINE),
}


@pytest.mark.parametrize("story", NOT_BAD.values(), ids=NOT_BAD.keys())
def test_a_probe_is_not_bad_by(world, story: Callable[..., None]) -> None:
    world.half_open()
    assert world.begin_probe("p")
    story(world)
    world.step(5.0, **QUARANTINE)
    world.end_probe("p")

    record = world.verdict().record
    assert (record.state, record.probes, record.good_probes) == (State.half_open, 1, 1)


def trip_by(world, cause: Cause) -> None:
    if cause is Cause.hard_limit:
        world.trip()
    elif cause is Cause.compile:
        world.compile(501.0)
    elif cause is Cause.crash:
        world.trust.replica_died("gpu-1", [world.attempt()])
        world.trust.replica_died("gpu-2", [world.attempt()])
    elif cause is Cause.slope:
        for token in range(1500):
            world.step(40.0 + 0.5 * token)
    assert world.verdict().record.trip.cause is cause


def rolled(steps: int) -> Callable[..., None]:
    return lambda world: world.rollup(steps, **QUARANTINE)


def nothing(world) -> None:
    """No record of it came."""


def compiled(world) -> None:
    world.compile(20.0, **QUARANTINE)


@pytest.mark.parametrize(
    ("cause", "seen", "end", "good"),
    [
        # how it tripped, what is seen of the probe, how it ends (answered, watched), whether that is good, not unclear
        (Cause.hard_limit, rolled(1), (True, False), True),
        (Cause.hard_limit, compiled, (True, False), True),
        (Cause.hard_limit, nothing, (True, False), False),
        (Cause.hard_limit, nothing, (True, True), True),
        (Cause.hard_limit, rolled(9), (False, True), False),
        (Cause.compile, rolled(9), (True, True), False),
        (Cause.compile, compiled, (True, False), True),
        (Cause.crash, nothing, (True, False), True),
        (Cause.crash, nothing, (False, False), False),
        (Cause.slope, rolled(50), (True, True), False),
        (Cause.slope, rolled(2000), (True, False), True),
    ],
)
def test_what_is_seen_of_a_probe_makes_it_good_or_says_nothing(
    world, cause: Cause, seen: Callable[..., None], end: tuple[bool, bool], good: bool
) -> None:
    trip_by(world, cause)
    world.pass_time(31.0)
    assert world.begin_probe("p")
    seen(world)
    world.end_probe("p", answered=end[0], watched=end[1])

    record = world.verdict().record
    assert (record.state, record.probes, record.good_probes) == (State.half_open, 1, int(good))


def test_an_unclear_probe_makes_the_next_one_neither_sooner_nor_later(world) -> None:
    world.half_open()
    for number in range(5):
        while not world.begin_probe(f"p{number}"):
            world.pass_time(0.5)
        world.end_probe(f"p{number}")
        record = world.verdict().record
        assert record.next_probe == pytest.approx(world.wall_offset_s + world.at_s + 2.0, abs=1.1)

    assert (record.probes, record.good_probes) == (5, 0)


def test_steps_that_a_rollup_repeats_are_counted_once(world) -> None:
    world.half_open()
    world.begin_probe("p")
    for _ in range(4):
        world.step(5.0, **QUARANTINE)
    world.rollup(10, **QUARANTINE)
    world.rollup(3, **QUARANTINE)

    assert world.trust._probes.find("p").steps == 13


def test_a_probe_that_runs_on_is_judged_after_its_time(world) -> None:
    world.half_open()
    world.begin_probe("p")
    world.rollup(100, **QUARANTINE)
    world.pass_time(59.0)
    assert world.told[-1].record.good_probes == 0
    world.pass_time(2.0)
    assert world.told[-1].record.good_probes == 1

    world.step(1e9, **QUARANTINE)
    world.end_probe("p")
    assert world.told[-1].record.probes == 1


def test_what_the_feed_tells_late_still_counts(world) -> None:
    world.half_open()
    world.begin_probe("p")
    world.trust.finished("p", "s1-a", answered=True)
    world.at_s += 0.3
    world.step(1e9, **QUARANTINE)

    assert world.state() is State.open


def test_the_death_of_a_replica_on_which_it_had_run_for_long_is_not_its_doing(world) -> None:
    world.half_open()
    world.begin_probe("p")
    world.pass_time(20.0)
    world.trust.replica_died("gpu-q", [world.attempt(20.0, **QUARANTINE)])
    world.end_probe("p", answered=False)

    assert (world.state(), world.told[-1].record.probes) == (State.half_open, 1)


def test_the_compile_limit_of_its_pool_holds_for_what_tripped_by_its_steps(world) -> None:
    world.compile(5.0)
    world.half_open()
    world.begin_probe("p")
    world.compile(501.0, limit_ms=None, **QUARANTINE)

    assert (world.state(), world.verdict().record.trip.cause) == (State.open, Cause.compile)


def test_a_probe_of_an_earlier_time_is_not_taken_for_one_of_now(world) -> None:
    world.half_open()
    world.begin_probe("p")
    world.trust.add(Kind.signature, "s1-a", "kim", "not now", wait_s=5.0)
    world.pass_time(6.0)
    world.step(1e9, **QUARANTINE)

    assert (world.state(), world.verdict().record.probes) == (State.half_open, 0)


def test_what_a_person_added_is_held_to_the_limits_for_that(make_world) -> None:
    world = make_world(manual_limits=Limits(budget_us=50.0, hard_limit_us=80.0))
    world.trust.add(Kind.signature, "s1-a", "kim", "looks odd", wait_s=10.0)
    world.pass_time(11.0)
    assert world.begin_probe("p")
    world.step(81.0, **QUARANTINE)

    assert (world.state(), world.verdict().record.trip.limit) == (State.open, 80.0)


def test_nobody_asks_for_it_any_more_and_it_closes(make_world) -> None:
    world = make_world(probing=Probing(unasked_s=100.0))
    world.half_open()
    world.pass_time(90.0)
    world.verdict()
    world.pass_time(90.0)
    assert world.state() is State.half_open

    world.pass_time(20.0)
    assert world.state() is State.closed


def test_after_closing_it_trips_on_new_evidence_only_and_waits_longer(world) -> None:
    world.half_open()
    for number in range(3):
        world.good_probe(f"p{number}")
    world.step(1500.0)
    world.step(1500.0)
    assert world.verdict() is None

    world.step(1500.0)
    record = world.verdict().record
    assert (record.trips, record.until - record.since) == (2, 60.0)


@pytest.mark.parametrize("costs_us", [[1500], [1500, 1500], [1500, 10], [10, 1500, 1500, 10]])
def test_a_short_probe_that_was_over_the_budget_half_of_the_time_proves_nothing(world, costs_us: list[float]) -> None:
    world.half_open()
    assert world.begin_probe("p")
    for us in costs_us:
        world.step(us, **QUARANTINE)
    world.end_probe("p")

    record = world.verdict().record
    assert (record.state, record.trips, record.good_probes) == (State.half_open, 1, 0)
