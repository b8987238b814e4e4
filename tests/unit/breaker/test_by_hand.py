"""What people do with breakers, what the log keeps of it, and what the client of a quarantined request is told."""

import pytest

from gateway.breaker.policy import Bounds
from gateway.breaker.record import Kind, State
from gateway.breaker.transitions import Publish
from gateway.hookcost.cost import FREE
from gateway.hookcost.observation import Limit


def test_added_for_a_time_it_is_probed_then(world) -> None:
    record = world.trust.add(Kind.signature, "s1-a", "kim", "looks odd", wait_s=60.0)
    assert (record.state, record.author, record.reason) == (State.open, "kim", "looks odd")
    assert world.verdict().retry_after_s == 60

    world.pass_time(60.0)
    assert world.verdict().probe is not None


def test_pinned_it_stays_until_somebody_releases_it(world) -> None:
    world.trust.pin(Kind.signature, "s1-a", "kim", "never again")
    world.pass_time(100.0)
    world.at_s += 1e7
    world.trust.tick()
    world.trust.add(Kind.signature, "s1-a", "lee", "for a minute", wait_s=60.0)
    world.trip()

    verdict = world.verdict()
    assert (verdict.record.state, verdict.record.author, verdict.probe) == (State.pinned, "kim", None)
    assert verdict.retry_after_s == 3600

    world.trust.release(Kind.signature, "s1-a", "lee", "fixed")
    assert world.verdict() is None


def test_a_release_lets_go_at_once_and_forgets(world) -> None:
    world.trip()
    world.trust.release(Kind.signature, "s1-a", "kim", "false alarm")
    assert world.verdict() is None

    world.trip()
    assert world.verdict().record.trips == 1


def test_a_release_forgets_what_was_not_enough_either(world) -> None:
    world.step(1500.0)
    world.step(1500.0)
    world.trust.release(Kind.signature, "s1-a", "kim", "clean slate")
    world.step(1500.0)

    assert world.verdict() is None


@pytest.mark.parametrize("act", ["add", "pin", "release"])
def test_what_a_person_does_is_forced_on_all_gateways(world, act: str) -> None:
    getattr(world.trust, act)(Kind.signature, "s1-a", "kim", "because")

    assert [(told.publish, told.event.value) for told in world.told] == [(Publish.force, act)]


@pytest.mark.parametrize(
    ("act", "arguments", "said"),
    [
        ("add", ("s1-a", "", "why"), "needs an author"),
        ("pin", ("s1-a", "breaker", "why"), "an author other than 'breaker'"),
        ("release", ("", "kim", "why"), "needs the name of a signature"),
        ("add", ("s1-a", "kim", "why", 0.0), "positive number"),
        ("add", ("s1-a", "kim", "why", float("nan")), "positive number"),
        ("add", ("s1-a", "kim", "why", float("inf")), "positive number"),
    ],
)
def test_what_makes_no_sense_is_refused_by_saying_so(world, act: str, arguments: tuple[object, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        getattr(world.trust, act)(Kind.signature, *arguments)
    assert not world.told


def test_pins_are_bounded(make_world) -> None:
    world = make_world(bounds=Bounds(pinned=2))
    for name in ("s1-a", "s1-b"):
        world.trust.pin(Kind.signature, name, "kim", "")
    with pytest.raises(ValueError, match="2 are, which is the bound"):
        world.trust.pin(Kind.signature, "s1-c", "kim", "")
    world.trust.pin(Kind.signature, "s1-b", "kim", "a better reason")

    world.trust.release(Kind.signature, "s1-a", "kim", "")
    world.trust.pin(Kind.signature, "s1-c", "kim", "")
    assert len(world.trust.snapshot()) == 2


def test_the_log_says_who_did_what_and_why_newest_first(world) -> None:
    world.trip()
    world.at_s += 5.0
    world.trust.pin(Kind.signature, "s1-a", "kim", "until Monday")
    world.at_s += 5.0
    world.trust.release(Kind.signature, "s1-a", "lee", "it is Monday")

    entries = world.trust.audit.entries()
    assert [(entry.author, entry.event, entry.before.value, entry.after.value) for entry in entries] == [
        ("lee", "release", "pinned", "closed"),
        ("kim", "pin", "open", "pinned"),
        ("breaker", "trip", "closed", "open"),
    ]
    assert entries[0].why == "it is Monday"
    assert "2 times the hard limit of pool 'interactive' of 100 ms" in entries[2].why
    assert entries[2].at == world.wall_offset_s


def test_the_log_is_bounded_and_breakers_do_not_push_out_people(make_world) -> None:
    world = make_world(bounds=Bounds(audit=10))
    world.trust.pin(Kind.signature, "s1-x", "kim", "first of all")
    for number in range(100):
        world.trip(f"s1-{number}", tenant="")

    entries = world.trust.audit.entries()
    assert len(entries) == 11
    assert [entry.author for entry in world.trust.audit.entries("s1-x")] == ["kim"]


def test_the_snapshot_has_all_that_bar_somebody(world) -> None:
    world.trip("s1-a")
    world.at_s += 1.0
    world.trust.pin(Kind.tenant, "other", "kim", "")
    world.at_s += 1.0
    world.trip("s1-b")
    world.trust.release(Kind.signature, "s1-b", "kim", "")

    assert [record.key for record in world.trust.snapshot()] == ["other", "s1-a"]
    assert world.trust.status()["signatures"] == 1
    assert world.trust.record(Kind.signature, "s1-unknown") is None


# --- what the client is told


def over_budget(world) -> None:
    for _ in range(3):
        world.step(2500.0)


def slope(world) -> None:
    for token in range(1500):
        world.step(40.0 + 0.5 * token)


def crashes(world) -> None:
    for replica in ("gpu-1", "gpu-2"):
        world.trust.replica_died(replica, [world.attempt(replica=replica)])


@pytest.mark.parametrize(
    ("story", "what", "fix", "over"),
    [
        (
            over_budget,
            "3 steps within 10 s were over the step budget of pool 'interactive': up to 2.5 ms of hook time, 2.5 times "
            "the budget of 1 ms, mostly by grammar_fill",
            "make the grammar cheaper",
            2.5,
        ),
        (
            lambda w: w.step(3e5),
            "one step took 300 ms of hook time, 3 times the hard limit",
            "the grammar cheaper",
            3.0,
        ),
        (lambda w: w.compile(2000), "its grammar took 2 s to compile, 4 times the limit", "grammar smaller", 4.0),
        (
            lambda w: [w.offence(Limit.soft) for _ in range(2)],
            "the engine's watchdog named 2 of its requests within 600 s",
            "the grammar cheaper",
            1.0,
        ),
        (slope, "its hook time rises with each token", "bound the output", None),
        (crashes, "2 replicas died within seconds of receiving it, the last one 'gpu-2'", "contradictory bounds", 1.0),
    ],
)
def test_the_client_is_told_what_was_over_by_how_much_and_how_to_fix_it(world, story, what, fix, over) -> None:
    story(world)
    verdict = world.verdict()

    message = verdict.message
    assert message.startswith("requests of this kind (cost signature s1-a) are quarantined since 2027-01-15T08:00:00Z")
    assert what in message
    assert fix in message
    document = verdict.document()
    assert document["signature"] == "s1-a"
    assert document["retry_after_s"] == verdict.retry_after_s == 30
    assert document["until"] == "2027-01-15T08:00:30Z"
    assert fix in document["advice"]
    assert over is None or document["times_over"] == over


def test_the_client_is_told_of_a_persons_decision(world) -> None:
    world.trust.pin(Kind.signature, "s1-a", "kim", "see ticket 12")
    verdict = world.verdict()

    assert (
        "until an operator releases them: by an operator: see ticket 12. To fix it: ask the operator" in verdict.message
    )
    assert verdict.document()["cause"] == "manual"
    assert verdict.document()["until"] is None


def test_the_client_is_told_of_its_tenant(world) -> None:
    for number in range(5):
        world.trip(f"s1-{number}")
    verdict = world.verdict("s1-new")

    assert verdict.message.startswith("requests of tenant 'acme' that ask for hook work are quarantined")
    assert "5 different kinds of requests of tenant 'acme'" in verdict.message
    assert verdict.document()["tenant"] == "acme"
    assert world.trust.verdict("s1-new", "acme", FREE) is None


def test_the_client_is_told_of_probes(world) -> None:
    world.half_open()

    assert "until a few of them, tried one at a time, have stayed within the limits" in world.verdict().message
