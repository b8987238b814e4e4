"""Requests of a pool that is full, as guests of another: where they go, what they are spared, and who comes first."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.admission import AdmissionPolicy, AdmissionQueue
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import Rejection, Router, overflow_of
from gateway.routing.rule import Rule
from gateway.routing.settings import PoolSettings, Spill
from gateway.routing.ticket import Ticket
from tests.unit.routing.conftest import MakeRequest
from tests.unit.routing.handclock import Clock


def pool(name: str, count: int = 1, budget_us: float | None = None, most: int = 0, structured: int = 0) -> Pool:
    members = tuple(Replica(f"{name}{at}", f"http://{name}:{at}", name, at, available=True) for at in range(count))
    return Pool(name, members, budget_us, max_in_flight=most, max_structured=structured)


class Hall:
    """Pools that take each other's overflow in the order in which they are given, as the proxy would ask them."""

    def __init__(self, *pools: Pool, **policy: float) -> None:
        self.clock = Clock()
        self.pools = {each.name: each for each in pools}
        self.queues = {
            each.name: AdmissionQueue(
                each,
                AdmissionPolicy(**policy),  # type: ignore[arg-type]
                clock=self.clock,
                call_at=self.clock.call_at,
            )
            for each in pools
        }
        for at, each in enumerate(pools):
            self.queues[each.name].overflow_to(tuple(self.queues[other.name] for other in pools[at + 1 :]))
        self.running: dict[str, tuple[Pool, bool, Replica, float, bool]] = {}
        self.waiting: dict[str, tuple[AdmissionQueue, Ticket]] = {}
        self.refused: dict[str, Rejection] = {}

    def ask(self, name: str, of: str, step_us: float = 0.0, *, structured: bool = False, **ticket: int) -> None:
        own = self.pools[of]
        replica = own.admit(step_us, structured)
        if replica is not None:
            self.running[name] = (own, False, replica, step_us, structured)
            return
        in_line = own.waiting > 0
        for host in () if in_line else own.overflow:
            replica = host.admit_guest(own, step_us, structured)
            if replica is not None:
                self.running[name] = (host, True, replica, step_us, structured)
                return

        def admitted(replica: Replica) -> None:
            _, ticket = self.waiting.pop(name)
            self.running[name] = (ticket.host or own, ticket.host is not None, replica, step_us, structured)

        def refused(rejection: Rejection) -> None:
            del self.waiting[name]
            self.refused[name] = rejection

        hosts = tuple(host.name for host in own.overflow)
        waits = Ticket(step_us, structured, admitted, refused, hosts=hosts, **ticket)
        outcome = self.queues[of].wait(waits)
        if outcome is None:
            self.waiting[name] = (self.queues[of], waits)
            if in_line:
                self.queues[of].look_abroad()
        elif isinstance(outcome, Rejection):
            self.refused[name] = outcome
        else:
            self.running[name] = (own, False, outcome, step_us, structured)

    def end(self, *names: str) -> None:
        for name in names:
            at, guest, replica, step_us, structured = self.running.pop(name)
            (at.release_guest if guest else at.release)(replica, step_us, structured)

    def leave(self, name: str) -> None:
        queue, ticket = self.waiting.pop(name)
        queue.cancel(ticket)

    def where(self) -> dict[str, str]:
        return {name: run[2].name for name, run in self.running.items()}

    def end_all(self) -> None:
        """Everything ends and nothing stays counted."""
        while self.running or self.waiting:
            self.end(*self.running)
            for name in list(self.waiting):
                if name in self.waiting and not self.running:
                    self.leave(name)
        for each in self.pools.values():
            assert (each.waiting, each.wanted) == (0, 0)
            for replica in each.replicas:
                assert (replica.in_flight, replica.booked, replica.booked_us, replica.structured) == (0, 0, 0.0, 0)
                assert (replica.guests, replica.guests_us) == (0, math.inf)


def test_what_its_own_pool_has_room_for_goes_there() -> None:
    hall = Hall(pool("chat", most=2), pool("forms"))
    hall.ask("a", "chat")
    hall.ask("b", "chat")
    assert hall.where() == {"a": "chat0", "b": "chat0"}
    hall.end_all()


def test_what_its_own_pool_has_no_room_for_goes_to_the_first_that_has_some() -> None:
    hall = Hall(pool("chat", most=1), pool("forms", most=1), pool("rest", most=1))
    for name in "abcd":
        hall.ask(name, "chat")
    assert hall.where() == {"a": "chat0", "b": "forms0", "c": "rest0"}
    assert list(hall.waiting) == ["d"]
    hall.end_all()


def test_a_pool_without_a_cap_takes_as_many_on_a_replica_as_the_guests_own() -> None:
    hall = Hall(pool("chat", most=2), pool("forms"))
    for name in "abcde":
        hall.ask(name, "chat")
    assert list(hall.where().values()) == ["chat0", "chat0", "forms0", "forms0"]
    hall.end_all()


def test_guests_go_where_least_runs() -> None:
    hall = Hall(pool("chat", most=1), pool("forms", 2, most=4))
    hall.ask("form", "forms")
    for name in "abc":
        hall.ask(name, "chat")
    assert hall.where() == {"form": "forms0", "a": "chat0", "b": "forms1", "c": "forms1"}
    hall.end_all()


@pytest.mark.parametrize(("booked_us", "taken"), [(900, True), (1000, True), (1001, False), (4000, False)])
def test_a_guest_goes_only_where_the_hooks_are_within_its_own_pools_budget(booked_us: float, taken: bool) -> None:
    hall = Hall(pool("chat", budget_us=1000, most=1), pool("forms", budget_us=6000, most=9))
    hall.ask("form", "forms", booked_us, structured=True)
    hall.ask("a", "chat")
    hall.ask("guest", "chat")
    assert ("guest" in hall.running) is taken
    hall.end_all()


@pytest.mark.parametrize(("hooks_us", "taken"), [(2000, True), (2001, False)])
def test_no_guest_goes_where_the_feed_tells_of_far_more_than_is_booked(hooks_us: float, taken: bool) -> None:
    forms = pool("forms", budget_us=6000, most=9)
    hall = Hall(pool("chat", budget_us=1000, most=1), forms)
    hall.ask("form", "forms", 100)
    forms.replicas[0].hooks_us = hooks_us
    hall.ask("a", "chat")
    hall.ask("guest", "chat")
    assert ("guest" in hall.running) is taken
    hall.end_all()


@pytest.mark.parametrize(("step_us", "taken"), [(200, True), (200.5, False)])
def test_a_guests_own_cost_counts(step_us: float, taken: bool) -> None:
    hall = Hall(pool("chat", budget_us=1000), pool("forms", budget_us=6000, most=9))
    hall.ask("form", "forms", 800, structured=True)
    hall.ask("a", "chat", 1000)
    hall.ask("guest", "chat", step_us)
    assert ("guest" in hall.running) is taken
    hall.end_all()


def test_a_smaller_budget_of_the_other_pool_holds_too() -> None:
    hall = Hall(pool("forms", budget_us=6000, most=1), pool("chat", budget_us=1000))
    hall.ask("a", "forms", 1500)
    hall.ask("small", "forms", 900)
    hall.ask("big", "forms", 1500)
    assert hall.where() == {"a": "forms0", "small": "chat0"}
    hall.end_all()


def test_the_caps_of_the_other_pool_hold() -> None:
    hall = Hall(pool("forms", most=1), pool("other", most=9, structured=1))
    for name in "abc":
        hall.ask(name, "forms", 10, structured=True)
    assert hall.where() == {"a": "forms0", "b": "other0"}
    hall.end_all()


def test_where_costs_are_not_bounded_guests_and_its_own_keep_apart() -> None:
    hall = Hall(pool("chat", budget_us=1000, most=1), pool("quarantine", 2, most=9))
    hall.ask("a", "chat")
    hall.ask("bomb", "quarantine", 50_000)
    hall.ask("b", "chat")
    hall.ask("c", "chat")
    assert hall.where() == {"a": "chat0", "bomb": "quarantine0", "b": "quarantine1", "c": "quarantine1"}

    hall.ask("plain", "quarantine")
    hall.ask("second bomb", "quarantine", 50_000)
    assert hall.where()["plain"] == hall.where()["second bomb"] == "quarantine0"
    hall.end_all()


def test_nothing_dear_is_put_beside_a_guest() -> None:
    hall = Hall(pool("chat", budget_us=1000, most=1), pool("forms", budget_us=6000, most=9))
    hall.ask("a", "chat")
    hall.ask("guest", "chat")
    hall.ask("cheap", "forms", 800)
    hall.ask("dear", "forms", 3000)
    assert list(hall.waiting) == ["dear"]

    hall.end("guest", "cheap")
    assert hall.where() == {"a": "chat0", "dear": "forms0"}
    hall.end_all()


def test_it_goes_to_a_replica_without_guests_if_there_is_one() -> None:
    hall = Hall(pool("chat", budget_us=1000, most=1), pool("forms", 2, budget_us=6000, most=9))
    hall.ask("a", "chat")
    hall.ask("guest", "chat")
    hall.ask("dear", "forms", 3000)
    assert hall.where()["dear"] != hall.where()["guest"]
    hall.end_all()


@pytest.mark.parametrize("budget_us", [6000.0, None])
def test_after_a_while_it_goes_before_guests(budget_us: float | None) -> None:
    hall = Hall(pool("chat", budget_us=1000, most=1), pool("forms", budget_us=budget_us, most=9), reserve_after_s=2.0)
    hall.ask("a", "chat")
    hall.ask("guest", "chat")
    hall.ask("dear", "forms", 3000)
    hall.ask("late", "chat")
    hall.clock.pass_s(1.9)
    assert list(hall.waiting) == ["dear", "late"]

    hall.clock.pass_s(0.2)
    assert hall.where()["dear"] == "forms0"
    hall.end("guest")
    assert list(hall.waiting) == ["late"]
    hall.end("dear")
    assert hall.where() == {"a": "chat0", "late": "forms0"}
    hall.end_all()


def test_no_guest_goes_where_somebody_waits() -> None:
    hall = Hall(pool("chat", most=1), pool("forms", budget_us=1000, most=9))
    hall.ask("form", "forms", 1000)
    hall.ask("next", "forms", 500)
    hall.ask("a", "chat")
    hall.ask("b", "chat")
    assert list(hall.waiting) == ["next", "b"]
    hall.end_all()


def test_room_to_spare_is_given_to_those_who_wait_in_their_order() -> None:
    hall = Hall(pool("chat", most=1), pool("forms", most=1))
    hall.ask("form", "forms")
    hall.ask("a", "chat")
    hall.ask("first", "chat")
    hall.ask("second", "chat", priority=1)

    hall.end("form")
    assert hall.where() == {"a": "chat0", "second": "forms0"}
    hall.end("second")
    assert hall.where() == {"a": "chat0", "first": "forms0"}
    hall.end_all()


def test_its_own_requests_come_before_guests() -> None:
    hall = Hall(pool("chat", most=1), pool("forms", most=1))
    for name, of in (("form", "forms"), ("a", "chat"), ("b", "chat"), ("next form", "forms")):
        hall.ask(name, of)

    hall.end("form")
    assert hall.where() == {"a": "chat0", "next form": "forms0"}
    hall.end_all()


def test_a_replica_that_comes_up_is_offered_to_guests() -> None:
    forms = pool("forms", most=1)
    forms.replicas[0].set_healthy(False)
    hall = Hall(pool("chat", most=1), forms)
    hall.ask("a", "chat")
    hall.ask("b", "chat")
    assert list(hall.waiting) == ["b"]

    forms.replicas[0].set_healthy(True)
    assert hall.where()["b"] == "forms0"
    hall.end_all()


def test_a_replica_on_trial_takes_no_guests() -> None:
    forms = pool("forms", most=9)
    forms.replicas[0].try_out(3)
    hall = Hall(pool("chat", most=1), forms)
    hall.ask("a", "chat")
    hall.ask("b", "chat")
    assert list(hall.waiting) == ["b"]
    hall.end_all()


def test_nobody_passes_those_who_wait_where_room_came_without_a_word() -> None:
    forms = pool("forms", budget_us=6000, most=2)
    hall = Hall(pool("chat", budget_us=1000, most=1), forms)
    forms.replicas[0].hooks_us = 5000
    for name in "abc":
        hall.ask(name, "chat")
    assert list(hall.waiting) == ["b", "c"]

    forms.replicas[0].hooks_us = 0
    hall.ask("d", "chat")
    assert hall.where() == {"a": "chat0", "b": "forms0", "c": "forms0"}
    assert list(hall.waiting) == ["d"]
    hall.end_all()


def test_who_may_not_be_a_guest_there_waits_for_its_own_pool() -> None:
    chat, forms = pool("chat", most=1), pool("forms", most=1)
    hall = Hall(chat, forms)
    hall.ask("form", "forms")
    hall.ask("a", "chat")
    stays = Ticket(0.0, False, lambda _: pytest.fail("admitted"), lambda _: None)
    assert hall.queues["chat"].wait(stays) is None
    hall.ask("goes", "chat")

    hall.end("form")
    assert hall.where() == {"a": "chat0", "goes": "forms0"}
    hall.queues["chat"].cancel(stays)
    hall.end_all()


def test_a_guest_that_leaves_before_it_was_told_gives_its_room_back() -> None:
    chat, forms = pool("chat", most=1), pool("forms", most=2)
    hall = Hall(chat, forms)
    hall.ask("form", "forms")
    hall.ask("form too", "forms")
    hall.ask("a", "chat")
    queue = hall.queues["chat"]
    second = Ticket(0.0, False, lambda _: pytest.fail("admitted"), lambda _: None, hosts=("forms",))

    def admitted(replica: Replica) -> None:
        queue.cancel(second)  # booked already, and not told yet
        forms.release_guest(replica)

    assert queue.wait(Ticket(0.0, False, admitted, lambda _: None, hosts=("forms",))) is None
    assert queue.wait(second) is None
    forms.set_step_budget(None)
    forms.max_in_flight = 4
    hall.end("form")
    hall.end_all()


def test_other_pools_may_take_the_overflow_while_some_wait() -> None:
    chat, forms, rest = pool("chat", most=1), pool("forms", most=1), pool("rest", most=1)
    hall = Hall(chat, forms, rest)
    hall.ask("form", "forms")
    hall.ask("other", "rest")
    hall.ask("a", "chat")
    hall.ask("b", "chat")
    assert (forms.wanted, rest.wanted) == (1, 1)

    hall.queues["chat"].overflow_to((hall.queues["rest"],))
    assert (forms.wanted, rest.wanted, chat.overflow) == (0, 1, (rest,))
    hall.end("form")
    assert list(hall.waiting) == ["b"]
    hall.end("other")
    assert hall.where() == {"a": "chat0", "b": "rest0"}
    hall.end_all()


def spilling(name: str, to: str | None) -> Pool:
    made = pool(name)
    made.reconfigure(PoolSettings(when_full=None if to is None else Spill(to)))
    return made


def test_the_overflow_of_a_pool_is_the_whole_chain() -> None:
    pools = {each.name: each for each in (spilling("a", "b"), spilling("b", "c"), spilling("c", None))}
    assert [host.name for host in overflow_of("a", pools)] == ["b", "c"]
    assert overflow_of("c", pools) == ()


@pytest.mark.parametrize(("to", "said"), [("a", "come back to 'a'"), ("x", "no pool is named 'x'")])
def test_an_overflow_that_leads_nowhere_is_an_error(to: str, said: str) -> None:
    pools = {each.name: each for each in (spilling("a", "b"), spilling("b", to))}
    with pytest.raises(ValueError, match=said):
        overflow_of("a", pools)


def test_the_decision_for_a_guest_says_where_it_comes_from_and_is_made_once(make_request: MakeRequest) -> None:
    pools = {name: pool(name) for name in ("chat", "forms", "down")}
    router = Router([Rule("all", "chat")], pools, "chat")
    decision = router.decide(make_request())
    found = router.as_guest(decision, pools["forms"])
    assert (found.pool, found.rule, found.spilled_from) == (pools["forms"], "all", "chat")
    assert found.guest_of is pools["chat"]
    assert router.as_guest(decision, pools["forms"]) is found


ACTIONS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(["chat", "forms", "rest"]), st.sampled_from([0.0, 300.0, 900.0, 4000.0])),
    st.tuples(st.just("end"), st.integers(0, 50), st.none()),
    st.tuples(st.just("leave"), st.integers(0, 50), st.none()),
    st.tuples(st.just("pass"), st.sampled_from([0.5, 3.0, 40.0]), st.none()),
    st.tuples(st.just("flip"), st.integers(0, 3), st.none()),
)


@given(st.lists(ACTIONS, max_size=60))
def test_whatever_happens_the_books_are_right_and_nobody_waits_for_what_is_there(
    actions: list[tuple[str, Any, Any]],
) -> None:
    chat, forms = pool("chat", 2, budget_us=1000, most=2), pool("forms", budget_us=6000, most=3)
    hall = Hall(chat, forms, pool("rest"))
    members = [replica for each in hall.pools.values() for replica in each.replicas]
    for number, (what, which, more) in enumerate(actions):
        match what:
            case "ask":
                hall.ask(str(number), which, more, structured=more > 0.0)
            case "end" if hall.running:
                hall.end(list(hall.running)[which % len(hall.running)])
            case "leave" if hall.waiting:
                hall.leave(list(hall.waiting)[which % len(hall.waiting)])
            case "pass":
                hall.clock.pass_s(which)
            case "flip":
                members[which].set_healthy(not members[which].healthy)
        check(hall)
    for replica in members:
        replica.set_healthy(True)
    hall.end_all()


def check(hall: Hall) -> None:
    running = list(hall.running.values())
    for each in hall.pools.values():
        for replica in each.replicas:
            here = [run for run in running if run[2] is replica]
            assert (replica.in_flight, replica.guests) == (len(here), sum(run[1] for run in here))
            assert replica.booked_us == pytest.approx(sum(run[3] for run in here))
            assert replica.in_flight <= (each.max_in_flight or len(here))
        tickets = [ticket for queue, ticket in hall.waiting.values() if queue.pool is each]
        assert each.waiting == len(tickets)
        assert not any(each.find(ticket.step_us, ticket.structured) for ticket in tickets)
    assert hall.pools["rest"].wanted == len(hall.waiting)
