"""Gateways that tell each other of their breakers through a store: they agree in the end, and forget no trip."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from breaker_world import HARD_US, World
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.breaker.ledger import Transition
from gateway.breaker.record import BreakerRecord, Kind, State
from gateway.breaker.transitions import Publish

Key = tuple[str, str]


@dataclass
class Shared:
    """The store itself: a value and a version for each key, and who has leased what."""

    values: dict[Key, tuple[int, bytes]] = field(default_factory=dict)
    leases: set[str] = field(default_factory=set)
    told: list[tuple[Key, int, bytes]] = field(default_factory=list)

    def put(self, key: Key, value: bytes, at_least: int = 0) -> int:
        version = max(self.values.get(key, (0, b""))[0], at_least - 1) + 1
        self.values[key] = (version, value)
        self.told.append((key, version, value))
        return version


class Gateway:
    """A Trust and its side of the store: it shows what is forced at once, and puts it on top when it can.

    What is advanced waits, too, and is lost if the version is another one by then.
    """

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.world = World()
        self.world.trust._notify = self.publish
        self.away = False
        self.shown: dict[Key, int] = {}
        self.unpublished: dict[Key, bytes] = {}
        self.waiting: dict[Key, tuple[int, bytes]] = {}

    def publish(self, transition: Transition) -> None:
        record = transition.record
        key, value = (record.kind.value, record.key), record.to_bytes()
        if transition.publish is Publish.force:
            self.waiting.pop(key, None)
            if self.away:
                self.unpublished[key] = value
                self.show(key, self.shown.get(key, 0) + 1, value)
            else:
                self.show(key, self.shared.put(key, value), value)
        elif transition.publish is Publish.advance:
            self.waiting[key] = (transition.expected_version, value)
            if not self.away:
                self.advance()

    def advance(self) -> None:
        for key, (expected, value) in list(self.waiting.items()):
            del self.waiting[key]
            if self.shared.values.get(key, (0, b""))[0] == expected:
                self.show(key, self.shared.put(key, value), value)

    def show(self, key: Key, version: int, value: bytes) -> None:
        self.shown[key] = max(version, self.shown.get(key, 0))
        self.world.trust.apply(version, BreakerRecord.from_bytes(value))

    def come_back(self) -> None:
        self.away = False
        for key, value in self.unpublished.items():
            self.show(key, self.shared.put(key, value, at_least=self.shown[key]), value)
            if key in self.waiting:  # it was advanced from what was shown of the force
                self.waiting[key] = (self.shown[key], self.waiting[key][1])
        self.unpublished.clear()
        self.advance()


SIGNATURES = strategies.sampled_from(["s1-a", "s1-b"])
WHICH = strategies.integers(0, 1)


class Gateways(RuleBasedStateMachine):
    """Two gateways with the same time; what one is told of the other comes late, repeatedly and in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared()
        self.gateways = [Gateway(self.shared), Gateway(self.shared)]
        self.probes = 0
        self.requests = 0

    @rule(which=WHICH, signature=SIGNATURES)
    def it_trips(self, which: int, signature: str) -> None:
        self.requests += 1
        world = self.gateways[which].world
        world.step(HARD_US + 1, signature=signature, request_id=f"r{self.requests}", tenant="")
        assert world.state(signature) is not State.closed

    @rule(which=WHICH, signature=SIGNATURES, act=strategies.sampled_from(["pin", "release"]))
    def a_person_acts(self, which: int, signature: str, act: str) -> None:
        getattr(self.gateways[which].world.trust, act)(Kind.signature, signature, "kim", "because")

    @rule(seconds=strategies.sampled_from([1, 10, 31, 70, 4000]))
    def time_passes(self, seconds: int) -> None:
        for gateway in self.gateways:
            gateway.world.at_s += seconds
            gateway.world.trust.tick()

    @rule(which=WHICH, signature=SIGNATURES, good=strategies.booleans())
    def a_probe_runs(self, which: int, signature: str, good: bool) -> None:
        gateway = self.gateways[which]
        verdict = gateway.world.verdict(signature, tenant="")
        if verdict is None or verdict.probe is None or gateway.away or verdict.probe.lease_key in self.shared.leases:
            return
        self.shared.leases.add(verdict.probe.lease_key)
        self.probes += 1
        name = f"p{self.probes}"
        assert gateway.world.trust.probe_leased(signature, name)
        gateway.world.step(1.0 if good else HARD_US + 1, signature=signature, request_id=name, pool="quarantine")
        if good:
            gateway.world.trust.finished(name, signature, answered=True)
            for other in self.gateways:
                other.world.at_s += 3
                other.world.trust.tick()

    @precondition(lambda self: self.shared.told)
    @rule(which=WHICH, data=strategies.data())
    def something_is_told(self, which: int, data: strategies.DataObject) -> None:
        if not self.gateways[which].away:
            self.gateways[which].show(*data.draw(strategies.sampled_from(self.shared.told)))

    @rule(which=WHICH)
    def it_loses_the_store(self, which: int) -> None:
        self.gateways[which].away = True

    @rule(which=WHICH)
    def it_finds_the_store_again(self, which: int) -> None:
        self.gateways[which].come_back()

    @rule(order=strategies.randoms(use_true_random=False))
    def all_is_told(self, order: object) -> None:
        """They all hear everything, in any order: now they agree, and with the store."""
        for gateway in self.gateways:
            gateway.come_back()
        for gateway in self.gateways:
            told = list(self.shared.told)
            order.shuffle(told)  # type: ignore[attr-defined]
            for key, version, value in told:
                gateway.show(key, version, value)
        # What was told may have been due at once.
        for gateway in self.gateways:
            gateway.world.trust.tick()
        for gateway in self.gateways:
            for key, (version, value) in self.shared.values.items():
                gateway.show(key, version, value)
        for (_, signature), (_, value) in self.shared.values.items():
            truth = BreakerRecord.from_bytes(value)
            assert {gateway.world.state(signature) for gateway in self.gateways} == {truth.state}

    @invariant()
    def a_trip_that_the_others_do_not_know_of_is_not_forgotten(self) -> None:
        for gateway in self.gateways:
            for (_, signature), value in gateway.unpublished.items():
                if BreakerRecord.from_bytes(value).state is not State.closed:
                    assert gateway.world.state(signature) is not State.closed


Gateways.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestGateways = Gateways.TestCase


@pytest.fixture
def pair() -> tuple[Gateway, Gateway]:
    shared = Shared()
    return Gateway(shared), Gateway(shared)


def hear_all(*gateways: Gateway) -> None:
    for gateway in gateways:
        for told in list(gateway.shared.told):
            gateway.show(*told)


def test_a_trip_here_is_a_quarantine_there(pair: tuple[Gateway, Gateway]) -> None:
    here, there = pair
    there.world.at_s = 77.0  # its monotonic clock has another origin
    there.world.wall_offset_s -= 77.0
    here.world.trip()
    hear_all(there)

    verdict = there.world.verdict()
    assert verdict.record == here.world.verdict().record
    assert verdict.retry_after_s == here.world.verdict().retry_after_s == 30
    assert there.world.trust.audit.entries()[0].foreign


@pytest.mark.parametrize(("skew_s", "retry_after_s"), [(-1e6, 30), (1e6, 1), (10, 20)])
def test_a_wall_clock_that_is_off_never_makes_a_wait_longer(
    pair: tuple[Gateway, Gateway], skew_s: float, retry_after_s: int
) -> None:
    here, there = pair
    there.world.wall_offset_s += skew_s
    here.world.trip()
    hear_all(there)

    assert there.world.verdict().retry_after_s == retry_after_s


def test_both_come_to_the_same_half_open_record_and_the_same_probe(pair: tuple[Gateway, Gateway]) -> None:
    here, there = pair
    here.world.trip()
    hear_all(there)
    here.world.at_s, there.world.at_s = 30.2, 31.7

    one, other = here.world.verdict(), there.world.verdict()
    assert one.record == other.record
    assert one.probe == other.probe


def test_good_probes_of_different_gateways_add_up(pair: tuple[Gateway, Gateway]) -> None:
    here, there = pair
    here.world.half_open()
    there.world.at_s = here.world.at_s
    hear_all(there)
    for number, gateway in enumerate((here, there, here)):
        gateway.world.at_s = max(here.world.at_s, there.world.at_s) + 20.0
        gateway.world.good_probe(f"p{number}")
        hear_all(here, there)

    assert (here.world.state(), there.world.state()) == (State.closed, State.closed)


def test_a_late_word_of_an_older_state_changes_nothing(pair: tuple[Gateway, Gateway]) -> None:
    here, there = pair
    here.world.trip()
    here.world.trust.release(Kind.signature, "s1-a", "kim", "fixed")
    (_, _, tripped), (_, _, released) = here.shared.told
    assert there.world.trust.apply(2, BreakerRecord.from_bytes(released))
    assert not there.world.trust.apply(1, BreakerRecord.from_bytes(tripped))

    assert there.world.verdict() is None


def test_what_is_known_already_changes_nothing(pair: tuple[Gateway, Gateway]) -> None:
    here, there = pair
    here.world.trip()
    hear_all(there)
    there.world.at_s += 31.0
    there.away = True
    assert there.world.verdict().record.state is State.half_open
    hear_all(there)

    assert there.world.state() is State.half_open


def test_a_gateway_that_was_away_brings_its_trip_with_it(pair: tuple[Gateway, Gateway]) -> None:
    here, there = pair
    there.world.trip()
    there.world.trust.release(Kind.signature, "s1-a", "kim", "fixed")
    here.away = True
    here.world.trip()
    hear_all(there)
    assert there.world.verdict() is None

    here.come_back()
    hear_all(here, there)
    assert here.world.verdict().record == there.world.verdict().record


def test_trips_told_by_others_count_for_the_tenant(pair: tuple[Gateway, Gateway]) -> None:
    here, there = pair
    for number in range(4):
        here.world.trip(f"s1-{number}")
    hear_all(there)
    there.world.trip("s1-4")

    assert there.world.verdict("s1-new").record.kind is Kind.tenant
    assert here.world.verdict("s1-new") is None
    hear_all(here)
    assert here.world.verdict("s1-new").record.kind is Kind.tenant


def test_a_tenant_is_opened_by_who_saw_the_last_trip_and_not_by_who_is_told(pair: tuple[Gateway, Gateway]) -> None:
    here, there = pair
    for number in range(5):
        here.world.trip(f"s1-{number}")
    for key, version, value in here.shared.told:
        if key[0] == "signature":
            there.show(key, version, value)

    assert there.world.verdict("s1-new") is None
    hear_all(there)
    assert there.world.verdict("s1-new") is not None


def test_what_is_pinned_the_store_must_keep_for_ever(world: World) -> None:
    world.trip()
    world.trust.pin(Kind.signature, "s1-a", "kim", "")

    assert [told.ttl_s for told in world.told] == [None, math.inf]


def test_forgotten_here_before_the_store_forgets(make_world: Callable[..., World]) -> None:
    world = make_world()
    for _ in range(50):
        world.trip()
        record = world.trust.record(Kind.signature, "s1-a")
        world.trust.apply(world.told[-1].expected_version + 1, record)
        world.trust.release(Kind.signature, "s1-a", "kim", "")
    world.at_s += world.policy.back_off.forget_s + 1.0
    world.trust.tick()

    assert world.trust.record(Kind.signature, "s1-a") is None
