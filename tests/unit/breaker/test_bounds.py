"""Memory is bounded, and what is quarantined is the last to be forgotten."""

import pytest

from gateway.breaker.policy import Bounds
from gateway.breaker.record import Kind, State


def test_no_quarantined_signature_is_forgotten_for_a_hundred_thousand_others(world) -> None:
    tripped = [f"s1-bad{number}" for number in range(200)]
    for signature in tripped:
        world.trip(signature, tenant="")
    for number in range(100_000):
        world.step(1500.0, signature=f"s1-{number}", request_id=f"r{number}")
        world.trust.finished(f"r{number}", f"s1-{number}", answered=True)

    assert all(world.verdict(signature) is not None for signature in tripped)
    bounds = world.policy.bounds
    assert world.trust.status()["evidence"] == bounds.evidence
    assert world.trust.status()["suspects"] <= 2 * bounds.evidence


def test_beyond_the_bound_the_one_that_nobody_asked_for_longest_is_let_go(make_world) -> None:
    world = make_world(bounds=Bounds(barred=3))
    for name in ("s1-a", "s1-b", "s1-c"):
        world.trip(name, tenant="")
    world.verdict("s1-a")
    world.trip("s1-d", tenant="")

    assert [world.state(name).value for name in ("s1-a", "s1-b", "s1-c", "s1-d")] == ["open", "closed", "open", "open"]
    entry = world.trust.audit.entries("s1-b")[0]
    assert (entry.event, entry.author) == ("let_go", "breaker")


def test_who_was_let_go_waits_longer_when_it_trips_again(make_world) -> None:
    world = make_world(bounds=Bounds(barred=1))
    world.trip("s1-a")
    world.trip("s1-b")
    world.trip("s1-a")

    assert world.verdict("s1-a").record.trips == 2
    assert world.verdict("s1-b") is None


def test_pinned_ones_are_never_let_go(make_world) -> None:
    world = make_world(bounds=Bounds(barred=2, pinned=2))
    world.trust.pin(Kind.signature, "s1-p", "kim", "")
    world.trust.pin(Kind.signature, "s1-q", "kim", "")
    for number in range(5):
        world.trip(f"s1-{number}", tenant="")

    assert {record.key for record in world.trust.snapshot()} == {"s1-p", "s1-q", "s1-4"}


def test_closed_ones_are_remembered_within_their_bound(make_world) -> None:
    world = make_world(bounds=Bounds(closed=10))
    for number in range(50):
        world.trip(f"s1-{number}", tenant="")
        world.trust.release(Kind.signature, f"s1-{number}", "kim", "")

    assert world.trust.status()["closed"] == 10
    assert world.state("s1-49") is State.closed


@pytest.mark.parametrize("cycles", [2000])
def test_plans_that_were_changed_do_not_pile_up(world, cycles: int) -> None:
    for _ in range(cycles):
        world.trust.add(Kind.signature, "s1-a", "kim", "", wait_s=1e6)

    assert len(world.trust._ledger.signatures._agenda) < cycles
