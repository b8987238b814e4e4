"""A tenant that sends one tripping signature after the other."""

import pytest

from gateway.breaker.policy import Escalation
from gateway.breaker.record import Kind, State
from gateway.breaker.transitions import Publish
from gateway.breaker.trip import Cause
from gateway.hookcost.cost import HookCost


def trip_many(world, count: int, tenant: str = "acme", every_s: float = 1.0, first: int = 0) -> None:
    for number in range(first, first + count):
        world.trip(f"s1-{number}", tenant=tenant, request_id=f"r{number}")
        world.at_s += every_s


def test_five_signatures_within_the_window_open_the_tenants_breaker(world) -> None:
    trip_many(world, 4)
    assert world.verdict("s1-new") is None

    trip_many(world, 1, first=4)
    record = world.verdict("s1-new").record
    assert (record.kind, record.key, record.state) == (Kind.tenant, "acme", State.open)
    assert (record.trip.cause, record.trip.count, record.trip.tenant) == (Cause.tenant, 5, "acme")
    assert world.told[-1].publish is Publish.force


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(lambda w: trip_many(w, 4), id="four"),
        pytest.param(lambda w: trip_many(w, 8, every_s=150.1), id="eight, but never five within the window"),
        pytest.param(lambda w: trip_many(w, 20, tenant=""), id="of nobody that is known"),
        pytest.param(
            lambda w: [trip_many(w, 4, tenant=f"t{number}", first=4 * number) for number in range(5)],
            id="of several tenants",
        ),
    ],
)
def test_no_tenant_is_opened_by(world, story) -> None:
    story(world)

    assert [told for told in world.told if told.record.kind is Kind.tenant] == []


def test_one_signature_that_trips_again_and_again_is_one(world) -> None:
    for _ in range(8):
        world.trip()
        world.trust.release(Kind.signature, "s1-a", "kim", "try again")

    assert world.verdict("s1-new") is None


def test_bad_probes_of_old_trips_are_no_new_ones(make_world) -> None:
    world = make_world(escalation=Escalation(signatures=2, window_s=20.0))
    for signature in ("s1-a", "s1-b"):
        world.trip(signature)
        world.pass_time(40.0)
    for signature in ("s1-a", "s1-b"):
        assert world.begin_probe(f"p-{signature}", signature)
        world.step(1e9, signature=signature, request_id=f"p-{signature}", pool="quarantine")

    assert world.verdict("s1-new") is None


def test_others_and_plain_requests_of_the_tenant_go_on(world) -> None:
    trip_many(world, 5)

    assert world.plain_verdict() is None
    assert world.verdict("s1-new", tenant="other") is None
    assert world.verdict("s1-new", cost=HookCost(compile_ms=1.0)) is not None
    assert world.verdict("s1-new", cost=HookCost(heavy="too deep")) is not None


def test_the_signatures_own_breaker_speaks_first(world) -> None:
    trip_many(world, 5)

    assert world.verdict("s1-0").record.kind is Kind.signature


def test_it_closes_when_the_wait_is_over_and_opens_for_longer_the_next_time(world) -> None:
    trip_many(world, 5)
    world.pass_time(31.0)
    assert world.state("acme", Kind.tenant) is State.closed
    assert world.verdict("s1-new") is None

    trip_many(world, 5, first=5)
    record = world.verdict("s1-new").record
    assert (record.trips, record.until - record.since) == (2, 60.0)


def test_the_wait_is_over_for_the_next_request_even_before_a_tick(world) -> None:
    trip_many(world, 5)
    world.at_s += 40.0

    assert world.verdict("s1-new") is None


def test_by_hand_too(world) -> None:
    world.trust.pin(Kind.tenant, "acme", "kim", "asked them to stop")
    assert world.verdict("s1-new").record.state is State.pinned
    assert world.plain_verdict() is None

    world.trust.release(Kind.tenant, "acme", "kim", "they did")
    assert world.verdict("s1-new") is None


def test_memory_is_bounded(make_world) -> None:
    world = make_world(escalation=Escalation(signatures=3, window_s=10.0))
    for number in range(11_000):
        world.trust._tenant_trips.add(f"t{number}", "s1-a", float(number))
    for number in range(1000):
        world.trust._tenant_trips.add("t-last", f"s1-{number}", 100.0 * number)

    assert len(world.trust._tenant_trips) == 10_000
    assert len(world.trust._tenant_trips._by_tenant["t-last"]) == 3
