from itertools import count

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.routing.capabilities import Capabilities
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.settings import PoolSettings, Spill


def replica(name: str = "r", available: bool = True) -> Replica:
    return Replica(name, f"http://{name}:1", name, 1, available=available)


def test_a_replica_that_joins_takes_requests() -> None:
    pool = Pool("p", ())
    assert pool.admit() is None

    joined = replica()
    pool.add(joined)

    assert pool.admit() is joined
    assert pool.replicas == (joined,)


def test_a_replica_that_joins_is_offered_to_those_who_wait() -> None:
    pool = Pool("p", (replica("a"),), max_in_flight=1)
    pool.admit()
    pool.waiting = pool.wanted = 1
    offered: list[Replica] = []
    pool.on_room = offered.append

    pool.add(joined := replica("b"))
    pool.add(replica("down", available=False))

    assert offered == [joined]


def test_a_replica_that_is_removed_finishes_what_runs_there_and_gets_nothing_new() -> None:
    pool = Pool("p", (leaving := replica("a"), staying := replica("b")))
    assert pool.admit() is leaving

    pool.remove(leaving)

    assert [pool.admit() for _ in range(3)] == [staying] * 3
    pool.release(leaving)
    assert leaving.in_flight == 0
    assert not leaving.available
    leaving.set_healthy(False)
    leaving.set_healthy(True)
    assert [pool.admit() for _ in range(3)] == [staying] * 3


def test_the_queue_is_told_when_the_last_available_replica_is_removed() -> None:
    pool = Pool("p", (last := replica(), replica("down", available=False)))
    seen: list[int] = []
    pool.on_empty = lambda: seen.append(len(pool.replicas))

    pool.remove(last)

    assert seen == [1]
    assert not pool.is_available()


def test_a_replica_takes_the_place_of_one_that_was_removed_without_its_requests() -> None:
    pool = Pool("p", (gone := replica("a"), replica("b")))
    pool.admit()
    pool.remove(gone)
    pool.add(new := replica("c"))

    assert new.at == gone.at
    assert new.in_flight == 0
    pool.release(gone)
    assert new.in_flight == 0
    assert pool.admit(excluded=[pool.replicas[0]]) is new


def test_a_replica_belongs_to_one_pool_for_its_life() -> None:
    pool = Pool("p", (member := replica(),))
    with pytest.raises(ValueError, match="each pool needs its own"):
        pool.add(member)
    pool.remove(member)
    with pytest.raises(ValueError, match="each pool needs its own"):
        Pool("q", ()).add(member)
    with pytest.raises(ValueError, match="is not in pool 'p'"):
        pool.remove(member)


def test_a_replica_that_drains_gets_nothing_new_until_it_is_taken_back() -> None:
    pool = Pool("p", (draining := replica("a"), other := replica("b")))
    assert pool.admit() is draining

    draining.drain()
    draining.set_healthy(True)
    draining.readmit()

    assert [pool.admit() for _ in range(3)] == [other] * 3
    assert draining.in_flight == 1
    draining.undrain()
    assert pool.admit() is draining


def test_new_settings_hold_for_what_comes_and_leave_what_runs() -> None:
    pool = Pool("p", (only := replica(),), 1000.0, max_in_flight=2)
    pool.admit(900.0)
    assert pool.admit(200.0) is None
    pool.waiting = pool.wanted = 1
    offered: list[Replica] = []
    pool.on_room = offered.append

    pool.reconfigure(PoolSettings(2000.0, Spill("q"), max_in_flight=3, max_structured=1))

    assert offered == [only]
    pool.waiting = 0
    assert pool.admit(200.0) is only
    assert (pool.when_unavailable, pool.max_in_flight, pool.max_structured) == (Spill("q"), 3, 1)


def test_what_engines_have_said_outlives_new_settings_that_say_the_same() -> None:
    configured = PoolSettings(capabilities=Capabilities(), backend="xgrammar")
    pool = Pool("p", (replica(),), capabilities=configured.capabilities, backend=configured.backend)
    learned = Capabilities(grammar=False)
    pool.capabilities, pool.backend = learned, "llguidance"

    pool.reconfigure(configured)
    assert (pool.capabilities, pool.backend) == (learned, "llguidance")

    pool.reconfigure(PoolSettings(capabilities=Capabilities(logprobs=False)))
    assert (pool.capabilities, pool.backend) == (Capabilities(logprobs=False), None)


class Members(RuleBasedStateMachine):
    """Replicas that come, go and drain under load, beside the plainest account of it."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool("p", ())
        self.names = count()
        self.members: list[Replica] = []
        self.running: list[Replica] = []

    @rule(available=st.booleans())
    def join(self, available: bool) -> None:
        self.members.append(joined := replica(f"r{next(self.names)}", available))
        self.pool.add(joined)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        leaving = data.draw(st.sampled_from(self.members))
        self.members.remove(leaving)
        self.pool.remove(leaving)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), change=st.sampled_from(["drain", "undrain", "up", "down"]))
    def change(self, data: st.DataObject, change: str) -> None:
        member = data.draw(st.sampled_from(self.members))
        match change:
            case "drain":
                member.drain()
            case "undrain":
                member.undrain()
            case _:
                member.set_healthy(change == "up")

    @rule()
    def begin(self) -> None:
        could = [each for each in self.members if each.healthy and not each.draining]
        taken = self.pool.admit()
        assert (taken is not None) == bool(could)
        if taken is not None:
            assert taken in could
            assert taken.in_flight - 1 == min(self.running.count(each) for each in could)
            self.running.append(taken)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.running) - 1))
        self.pool.release(self.running.pop(at))

    @invariant()
    def counts_are_exact(self) -> None:
        assert list(self.pool.replicas) == self.members
        assert self.pool.is_available() == any(each.available for each in self.members)
        for each in self.members:
            assert each.in_flight == self.running.count(each)


TestMembers = Members.TestCase
