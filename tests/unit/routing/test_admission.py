import asyncio
import heapq
import math
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.routing.admission import AdmissionPolicy, AdmissionQueue
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import Rejection
from gateway.routing.ticket import Ticket
from tests.unit.routing.handclock import Clock


class Desk:
    """Admits requests to one pool as the proxy does, and keeps what became of each by its name."""

    def __init__(
        self,
        *,
        replicas: int = 1,
        budget_us: float | None = 1000.0,
        max_in_flight: int = 0,
        max_structured: int = 0,
        **policy: float,
    ) -> None:
        self.clock = Clock()
        members = tuple(Replica(f"r{at}", f"http://h:{at}", "h", at, available=True) for at in range(replicas))
        self.pool = Pool("p", members, budget_us, max_in_flight=max_in_flight, max_structured=max_structured)
        if "queue" in policy:
            policy["queue"] = int(policy["queue"])
        self.queue = AdmissionQueue(
            self.pool,
            AdmissionPolicy(**policy),  # type: ignore[arg-type]
            clock=self.clock,
            call_at=self.clock.call_at,
        )
        self.running: dict[str, tuple[Replica, float, bool]] = {}
        self.refused: dict[str, Rejection] = {}
        self.waiting: dict[str, Ticket] = {}
        self.order: list[str] = []

    def ask(
        self,
        name: str,
        step_us: float = 0.0,
        *,
        structured: bool = False,
        excluded: tuple[Replica, ...] = (),
        **ticket: object,
    ) -> None:
        replica = self.pool.admit(step_us, structured, excluded)
        if replica is not None:
            self._admitted(name, replica, step_us, structured)
            return

        def admitted(replica: Replica) -> None:
            del self.waiting[name]
            self._admitted(name, replica, step_us, structured)

        def refused(rejection: Rejection) -> None:
            del self.waiting[name]
            self.refused[name] = rejection

        waits = Ticket(step_us, structured, admitted, refused, excluded=excluded, **ticket)  # type: ignore[arg-type]
        outcome = self.queue.wait(waits)
        if outcome is None:
            self.waiting[name] = waits
        elif isinstance(outcome, Rejection):
            self.refused[name] = outcome
        else:
            self._admitted(name, outcome, step_us, structured)

    def end(self, *names: str) -> None:
        for name in names:
            self.pool.release(*self.running.pop(name))

    def leave(self, name: str) -> None:
        self.queue.cancel(self.waiting.pop(name))

    def where(self, name: str) -> str:
        return self.running[name][0].name

    def _admitted(self, name: str, replica: Replica, step_us: float, structured: bool) -> None:
        self.running[name] = (replica, step_us, structured)
        self.order.append(name)


def test_what_does_not_fit_waits_until_room_is_released() -> None:
    desk = Desk()
    desk.ask("a", 700)
    desk.ask("b", 400)
    assert list(desk.waiting) == ["b"]

    desk.end("a")
    assert list(desk.running) == ["b"]


def test_one_release_admits_all_who_fit_then() -> None:
    desk = Desk()
    desk.ask("a", 1000)
    for name in "bcde":
        desk.ask(name, 400)

    desk.end("a")

    assert list(desk.running) == ["b", "c"]


def test_a_request_without_a_cost_never_waits_for_step_budget() -> None:
    desk = Desk()
    desk.ask("a", 1000)
    desk.ask("b", 400)

    desk.ask("plain")

    assert "plain" in desk.running


def test_requests_without_a_cost_wait_where_a_replica_has_all_the_requests_it_may() -> None:
    desk = Desk(max_in_flight=2, budget_us=None)
    for name in "abcd":
        desk.ask(name)
    assert list(desk.waiting) == ["c", "d"]

    desk.end("b")
    assert list(desk.running) == ["a", "c"]


def test_structured_requests_wait_for_their_own_cap_and_are_in_nobodys_way() -> None:
    desk = Desk(max_structured=1, budget_us=None)
    desk.ask("a", 10, structured=True)
    desk.ask("b", 10, structured=True)
    desk.ask("c", 10)
    assert (list(desk.waiting), list(desk.running)) == (["b"], ["a", "c"])

    desk.end("c")
    assert list(desk.waiting) == ["b"]
    desk.end("a")
    assert list(desk.running) == ["b"]


def test_a_request_too_big_for_any_budget_runs_alone_rather_than_never() -> None:
    desk = Desk(reserve_after_s=math.inf)
    desk.ask("a", 100)
    desk.ask("plain")
    desk.ask("big", 5000)
    assert list(desk.waiting) == ["big"]

    desk.end("a")
    desk.ask("b", 1)
    assert (list(desk.running), list(desk.waiting)) == (["plain", "big"], ["b"])


def test_the_first_in_line_does_not_keep_others_from_room_that_it_cannot_use() -> None:
    desk = Desk(replicas=2)
    desk.ask("a", 800)
    desk.ask("b", 800)
    desk.ask("big", 900)

    desk.ask("small", 150)

    assert list(desk.waiting) == ["big"]
    assert "small" in desk.running


def test_a_big_request_passed_over_for_long_gets_a_replica_of_its_own() -> None:
    desk = Desk(replicas=2, reserve_after_s=2)
    for name, cost in (("a", 500), ("b", 600), ("c", 300), ("d", 300)):
        desk.ask(name, cost)
    assert [desk.where(name) for name in "abcd"] == ["r0", "r1", "r0", "r1"]
    desk.ask("big", 900)

    desk.clock.pass_s(1.9)
    desk.ask("small", 50)
    desk.clock.pass_s(0.1)
    assert desk.where("small") == "r0"
    desk.end("small")

    desk.ask("late", 50)  # r0 has the least booked: reserved from now on
    desk.ask("later", 50)
    assert (desk.where("late"), desk.where("later")) == ("r1", "r1")
    desk.ask("latest", 50)
    assert list(desk.waiting) == ["big", "latest"]
    desk.ask("plain")
    assert desk.where("plain") == "r0"

    desk.end("a")
    assert list(desk.waiting) == ["big", "latest"]
    desk.end("c")
    assert desk.where("big") == "r0"
    assert desk.where("latest") == "r0"


@pytest.mark.parametrize("big_us", [900.0, 5000.0])
def test_a_stream_of_small_requests_cannot_starve_a_big_one(big_us: float) -> None:
    # 40 requests a second that run for a second each, where 20 have room: there is always one to take what is left.
    desk = Desk(replicas=2, reserve_after_s=2, max_wait_s=60)
    asked_s, served_s = 5.0, math.inf
    ends: list[tuple[float, str]] = []
    for at in range(40 * 30):
        now_s = at / 40
        desk.clock.pass_s(now_s - desk.clock.now_s)
        while ends and ends[0][0] <= now_s:
            desk.end(heapq.heappop(ends)[1])
        if now_s == asked_s:
            desk.ask("big", big_us, tenant="other")  # of the same one, it would stand behind a hundred older ones
        known = len(desk.order)
        desk.ask(f"small{at}", 100)
        for name in [*desk.order[known:], *(name for name in desk.running if name.startswith("small"))]:
            if not any(other == name for _, other in ends):
                heapq.heappush(ends, (now_s + 1, name))
        if "big" in desk.running:
            served_s = min(served_s, now_s)

    assert served_s - asked_s <= 2 + 1 + 0.1  # the reservation, and the longest of those that ran by then


def test_a_reservation_ends_with_its_holder() -> None:
    desk = Desk(reserve_after_s=2)
    desk.ask("a", 600)
    desk.ask("big", 900)
    desk.clock.pass_s(2)
    desk.ask("small", 100)
    assert list(desk.waiting) == ["big", "small"]

    desk.leave("big")

    assert list(desk.running) == ["a", "small"]


def test_a_reservation_moves_on_when_its_replica_goes_down() -> None:
    desk = Desk(replicas=2, reserve_after_s=2)
    desk.ask("a", 500)
    desk.ask("b", 600)
    desk.ask("big", 900)
    desk.clock.pass_s(2)
    desk.ask("small", 401)
    assert desk.queue.snapshot()["reserved"] == "r0"

    desk.pool.replicas[0].set_healthy(False)
    desk.end("b")

    assert desk.where("big") == "r1"
    assert desk.queue.snapshot()["reserved"] is None


def test_a_higher_priority_goes_first_and_is_in_no_reservations_way() -> None:
    desk = Desk(reserve_after_s=2)
    desk.ask("a", 600)
    desk.ask("low", 900, priority=0)
    desk.clock.pass_s(3)
    desk.ask("x", 400.1)
    assert desk.queue.snapshot()["reserved"] == "r0"

    desk.ask("urgent", 300, priority=5)
    assert "urgent" in desk.running
    desk.ask("high", 900, priority=5)
    desk.end("urgent", "a")

    assert list(desk.running) == ["high"]
    assert list(desk.waiting) == ["low", "x"]


def test_a_reservation_is_back_when_a_higher_priority_has_gone_past_it() -> None:
    desk = Desk(reserve_after_s=2)
    desk.ask("a", 20)
    desk.ask("big", 4000)
    desk.clock.pass_s(3)
    desk.ask("small", 20)
    assert list(desk.waiting) == ["big", "small"]

    desk.ask("urgent", 20, priority=1)
    desk.ask("late", 20)

    assert (list(desk.running), list(desk.waiting)) == (["a", "urgent"], ["big", "small", "late"])
    assert desk.queue.snapshot()["reserved"] == "r0"


def test_priorities_go_in_their_order_and_equals_in_order_of_coming() -> None:
    desk = Desk()
    desk.ask("first", 1000)
    for name, priority in (("a", 0), ("b", 2), ("c", 1), ("d", 2), ("e", -1)):
        desk.ask(name, 1000, priority=priority)

    for _ in range(5):
        desk.end(desk.order[-1])

    assert desk.order == ["first", "b", "d", "c", "a", "e"]


def test_tenants_take_turns_however_many_requests_each_has_waiting() -> None:
    desk = Desk()
    desk.ask("first", 1000, tenant="x")
    for at in range(6):
        desk.ask(f"greedy{at}", 1000, tenant="greedy")
    desk.ask("modest0", 1000, tenant="modest")
    desk.ask("modest1", 1000, tenant="modest")

    for _ in range(8):
        desk.end(desk.order[-1])

    assert desk.order[1:5] == ["greedy0", "modest0", "greedy1", "modest1"]


def test_turns_are_measured_in_step_cost() -> None:
    desk = Desk()
    desk.ask("first", 1000)
    for at in range(3):
        desk.ask(f"dear{at}", 900, tenant="dear")
    for at in range(9):
        desk.ask(f"cheap{at}", 300, tenant="cheap")

    desk.end("first")
    for _ in range(20):
        if desk.running:
            desk.end(next(iter(desk.running)))

    first_half = desk.order[1:7]
    cost = {"dear": 900, "cheap": 300}
    given = {tenant: sum(cost[tenant] for name in first_half if name.startswith(tenant)) for tenant in cost}
    assert abs(given["dear"] - given["cheap"]) <= 900


def test_who_leaves_unserved_is_not_charged() -> None:
    desk = Desk()
    desk.ask("first", 1000)
    for at in range(5):
        desk.ask(f"a{at}", 1000, tenant="a")
    for at in range(4):
        desk.leave(f"a{at}")
    desk.ask("b0", 1000, tenant="b")
    desk.ask("b1", 1000, tenant="b")

    for _ in range(3):
        desk.end(desk.order[-1])

    assert desk.order[1:] == ["a4", "b0", "b1"]


def test_nobody_saves_up_turns_while_away() -> None:
    desk = Desk()
    desk.ask("first", 1000)
    for at in range(10):
        desk.ask(f"a{at}", 1000, tenant="a")
    for _ in range(5):
        desk.end(desk.order[-1])
    for at in range(5):
        desk.ask(f"b{at}", 1000, tenant="b")

    for _ in range(4):
        desk.end(desk.order[-1])

    assert sorted(desk.order[-4:]) == ["a5", "a6", "b0", "b1"]


@pytest.mark.parametrize(("asked_s", "waits_s"), [(None, 30.0), (5.0, 5.0), (90.0, 30.0), (0.0, 0.0)])
def test_who_waited_too_long_is_told_to_come_back(asked_s: float | None, waits_s: float) -> None:
    desk = Desk(max_wait_s=30)
    desk.ask("a", 1000)
    desk.ask("late", 400, max_wait_s=asked_s)

    desk.clock.pass_s(waits_s - 0.001)
    assert list(desk.waiting) == ["late"]
    desk.clock.pass_s(0.001)

    rejection = desk.refused["late"]
    assert (rejection.status, rejection.code, rejection.retry_after_s) == (503, "queue_timeout", 30)
    assert rejection.message == f"no replica of pool 'p' had room for the request's 400 µs a step within {waits_s:g} s"
    desk.end("a")
    assert not desk.running


async def test_deadlines_are_kept_by_a_real_loop() -> None:
    loop = asyncio.get_running_loop()
    pool = Pool("p", (Replica("r", "http://h:1", "h", 1, available=True),), 1000.0)
    queue = AdmissionQueue(pool, AdmissionPolicy(), clock=loop.time, call_at=loop.call_at)
    assert pool.admit(1000.0) is not None
    answers: asyncio.Queue[str] = asyncio.Queue()

    for name, wait_s in (("second", 0.02), ("first", 0.01), ("never", None)):
        queue.wait(Ticket(1.0, False, print, lambda _, name=name: answers.put_nowait(name), max_wait_s=wait_s))  # type: ignore[misc]

    async with asyncio.timeout(10):
        assert [await answers.get(), await answers.get()] == ["first", "second"]
    assert len(queue) == 1
    queue.close()


def test_there_is_one_timer_for_the_earliest_deadline() -> None:
    desk = Desk(max_wait_s=30)
    desk.ask("a", 1000)
    for at in range(100):
        desk.ask(f"w{at}", 1000)
        desk.clock.pass_s(0.01)
    assert desk.clock.set == 1

    desk.ask("hurried", 1000, max_wait_s=1)
    assert desk.clock.set == 2
    desk.clock.pass_s(1)
    assert list(desk.refused) == ["hurried"]

    desk.clock.pass_s(60)
    assert len(desk.refused) == 101
    assert not any(timer[2]._callback for timer in desk.clock.timers)


def test_deadlines_of_those_who_left_are_forgotten_before_they_pass() -> None:
    desk = Desk(max_wait_s=3600)
    desk.ask("a", 1000)
    desk.ask("stays", 1000)
    for at in range(10_000):
        desk.ask(f"w{at}", 1000)
        desk.leave(f"w{at}")

    assert len(desk.queue._deadlines) < 100


@pytest.mark.parametrize("way", ["left", "admitted", "refused"])
def test_a_request_is_let_go_of_when_it_waits_no_more(way: str) -> None:
    class Request:
        def told(self, _: object) -> None: ...

    desk = Desk(max_wait_s=3600)
    desk.ask("a", 1000)
    request = Request()
    gone = weakref.ref(request)
    ticket = Ticket(10.0, False, request.told, request.told, max_wait_s=5 if way == "refused" else None)
    desk.queue.wait(ticket)
    del request
    assert gone() is not None

    if way == "left":
        desk.queue.cancel(ticket)
    elif way == "admitted":
        desk.end("a")
    else:
        desk.clock.pass_s(5)

    assert gone() is None  # although its deadline, where it is still remembered, is ahead


def test_a_full_queue_refuses_at_once() -> None:
    desk = Desk(queue=2)
    for name in "abc":
        desk.ask(name, 1000)

    desk.ask("d", 1000)

    rejection = desk.refused["d"]
    assert (rejection.status, rejection.code, rejection.retry_after_s) == (429, "queue_full", 30)
    assert rejection.message.startswith("2 requests wait for pool 'p' already")
    assert list(desk.waiting) == ["b", "c"]


def test_a_pool_without_a_queue_refuses_what_does_not_fit_now() -> None:
    desk = Desk(queue=0)
    desk.ask("a", 700)
    desk.ask("b", 400)
    desk.ask("c", 300)

    assert (list(desk.running), list(desk.refused)) == (["a", "c"], ["b"])


@pytest.mark.parametrize(
    ("newcomer", "displaced"),
    [
        ({"tenant": "greedy"}, "new"),
        ({"tenant": "modest"}, "greedy2"),
        ({"tenant": "other"}, "greedy2"),
        ({"tenant": "greedy", "priority": 1}, "greedy2"),
        ({"tenant": "modest", "priority": -1}, "new"),
    ],
)
def test_a_full_queue_is_left_by_whoever_demands_most(newcomer: dict[str, object], displaced: str) -> None:
    desk = Desk(queue=4)
    desk.ask("a", 1000)
    for at in range(3):
        desk.ask(f"greedy{at}", 1000, tenant="greedy")
    desk.ask("modest", 1000, tenant="modest")

    desk.ask("new", 1000, **newcomer)  # type: ignore[arg-type]

    assert list(desk.refused) == [displaced]
    assert len(desk.waiting) == len(desk.queue) == 4


def test_retry_after_follows_the_rate_at_which_the_queue_empties() -> None:
    desk = Desk(queue=100, max_wait_s=30)
    desk.ask("first", 1000)
    for at in range(120):
        desk.ask(f"w{at}", 1000)
        if at >= 20:  # one in two is admitted: five a second
            desk.clock.pass_s(0.1)
            if at % 2:
                desk.end(desk.order[-1])
    waiting = len(desk.waiting)

    assert desk.queue.retry_after_s() == pytest.approx((waiting + 1) / 5, rel=0.1, abs=1)

    desk.clock.pass_s(25)
    assert desk.queue.retry_after_s() == 30  # nothing has moved for long


def test_who_left_takes_no_room_and_no_callback_comes() -> None:
    desk = Desk()
    desk.ask("a", 1000)
    desk.ask("b", 1000)
    ticket = desk.waiting["b"]
    desk.leave("b")
    desk.queue.cancel(ticket)
    desk.ask("c", 1000)

    desk.end("a")
    desk.clock.pass_s(60)

    assert (list(desk.running), list(desk.refused)) == (["c"], [])
    assert desk.queue.left == 1


def test_who_leaves_between_decision_and_callback_gives_its_booking_back() -> None:
    desk = Desk()
    desk.ask("a", 1000)
    second = Ticket(500.0, False, lambda _: pytest.fail("it has left"), lambda _: pytest.fail("it has left"))
    first = Ticket(500.0, False, lambda _: desk.queue.cancel(second), lambda _: pytest.fail("there is room"))
    assert desk.queue.wait(first) is None
    assert desk.queue.wait(second) is None
    desk.ask("c", 500)

    desk.end("a")

    assert "c" in desk.running
    assert desk.pool.replicas[0].booked_us == 1000


def test_a_replica_that_comes_up_takes_those_who_wait() -> None:
    desk = Desk(replicas=2)
    desk.pool.replicas[1].set_healthy(False)
    for name in "abc":
        desk.ask(name, 700)

    desk.pool.replicas[1].set_healthy(True)

    assert (desk.where("b"), list(desk.waiting)) == ("r1", ["c"])


def test_a_replica_on_trial_takes_no_more_of_them_than_it_has_trials() -> None:
    desk = Desk(replicas=2)
    desk.pool.replicas[1].eject()
    desk.ask("a", 1000)
    for name in "bcd":
        desk.ask(name, 100)

    desk.pool.replicas[1].try_out(2)
    assert (desk.where("b"), desk.where("c"), list(desk.waiting)) == ("r1", "r1", ["d"])

    desk.pool.replicas[1].readmit()
    assert desk.where("d") == "r1"


def test_a_greater_budget_is_offered_at_once() -> None:
    desk = Desk()
    for name in "abc":
        desk.ask(name, 800)

    desk.pool.set_step_budget(1700)

    assert list(desk.waiting) == ["c"]
    desk.pool.set_step_budget(None)
    assert not desk.waiting


def test_those_who_wait_are_handed_back_when_the_last_replica_goes() -> None:
    desk = Desk(replicas=2)
    for name in "abcd":
        desk.ask(name, 1000)

    desk.pool.replicas[0].set_healthy(False)
    assert list(desk.waiting) == ["c", "d"]
    desk.pool.replicas[1].eject()

    assert {name: rejection.code for name, rejection in desk.refused.items()} == {
        "c": "pool_unavailable",
        "d": "pool_unavailable",
    }


def test_a_request_does_not_wait_for_replicas_that_failed_it() -> None:
    desk = Desk(replicas=3)
    tried = desk.pool.replicas[:2]
    desk.pool.replicas[2].set_healthy(False)

    desk.ask("a", 10, excluded=tried)
    assert desk.refused["a"].code == "pool_unavailable"

    desk.pool.replicas[2].set_healthy(True)
    for at in range(3):
        desk.ask(f"fill{at}", 1000)
    desk.ask("b", 10, excluded=tried)
    desk.end("fill0", "fill1")
    assert list(desk.waiting) == ["b"]
    desk.end("fill2")
    assert desk.where("b") == "r2"


def test_a_closed_queue_refuses_all_who_wait() -> None:
    desk = Desk()
    for name in "abc":
        desk.ask(name, 1000)

    desk.queue.close()

    assert (list(desk.waiting), sorted(desk.refused)) == ([], ["b", "c"])
    assert not any(timer[2]._callback for timer in desk.clock.timers)


def test_a_callback_that_fails_costs_the_others_nothing() -> None:
    desk = Desk()
    desk.ask("a", 1000)

    def fail(_: object) -> None:
        raise RuntimeError("no good")

    desk.queue.wait(Ticket(400.0, False, fail, fail))
    desk.ask("b", 400)

    with pytest.raises(ExceptionGroup, match="pool 'p'"):
        desk.end("a")

    assert "b" in desk.running


def test_callbacks_may_end_and_begin_requests_to_any_depth() -> None:
    desk = Desk(queue=5000)
    desk.ask("a", 1000)
    served = 0

    def served_at_once(replica: Replica) -> None:
        nonlocal served
        served += 1
        desk.pool.release(replica, 1000.0)

    for _ in range(5000):
        desk.queue.wait(Ticket(1000.0, False, served_at_once, lambda _: None))

    desk.end("a")

    assert served == 5000


def test_a_snapshot_says_who_waits_and_what_became_of_the_others() -> None:
    desk = Desk(queue=3, max_wait_s=30)
    for at in range(5):
        desk.ask(f"w{at}", 400 + at)
    desk.end("w0")
    desk.clock.pass_s(1.5)
    desk.leave("w4")

    assert desk.queue.snapshot() == {
        "waiting": 1,
        "oldest_s": 1.5,
        "waiting_us": 403,
        "admitted_per_s": pytest.approx(0.6, rel=0.1),
        "reserved": None,
        "admitted": 1,
        "full": 0,
        "late": 0,
        "left": 1,
        "homeless": 0,
    }


@settings(max_examples=60)
@given(
    costs=st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.integers(1, 1000), min_size=30, max_size=40), min_size=2, max_size=4
    ),
    order=st.randoms(use_true_random=False),
)
def test_tenants_that_wait_all_the_while_get_the_same_but_for_one_request_each(
    costs: dict[str, list[int]], order: object
) -> None:
    # One request at a time: every one of them fits when it is offered room.
    desk = Desk(max_in_flight=1, queue=10_000)
    desk.ask("first", 1)
    names = [(f"{tenant}{at}", tenant, cost) for tenant, all_of in costs.items() for at, cost in enumerate(all_of)]
    order.shuffle(names)  # type: ignore[attr-defined]
    cost_of = {name: cost for name, _, cost in names}
    for name, tenant, cost in names:
        desk.ask(name, cost, tenant=tenant)

    given_us = dict.fromkeys(costs, 0)
    left = {tenant: len(all_of) for tenant, all_of in costs.items()}
    while all(left.values()):
        desk.end(desk.order[-1])
        name = desk.order[-1]
        given_us[name[0]] += cost_of[name]
        left[name[0]] -= 1
        for one in costs:
            for other in costs:
                assert given_us[one] - given_us[other] <= max(costs[one]) + max(costs[other])


class Requests(RuleBasedStateMachine):
    """Requests that come, wait, run, leave, expire, and replicas that come and go: what must always hold."""

    COSTS = (0.0, 20.0, 150.0, 400.0, 900.0, 4000.0)

    @initialize(
        replicas=st.integers(1, 4),
        queue=st.integers(0, 6),
        max_in_flight=st.sampled_from([0, 3]),
        max_structured=st.sampled_from([0, 2]),
    )
    def begin(self, replicas: int, queue: int, max_in_flight: int, max_structured: int) -> None:
        self.desk = Desk(
            replicas=replicas,
            queue=queue,
            max_in_flight=max_in_flight,
            max_structured=max_structured,
            max_wait_s=10,
            reserve_after_s=3,
        )
        self.asked: dict[str, float] = {}
        self.over: set[str] = set()

    @rule(
        step_us=st.sampled_from(COSTS),
        structured=st.booleans(),
        tenant=st.sampled_from("xyz"),
        priority=st.integers(0, 1),
        max_wait_s=st.sampled_from([None, 2.0]),
    )
    def ask(self, step_us: float, structured: bool, tenant: str, priority: int, max_wait_s: float | None) -> None:
        name = f"q{len(self.asked)}"
        self.asked[name] = step_us
        could = any(self.desk.pool.fits(r, step_us, structured) for r in self.desk.pool.replicas if r.available)
        self.desk.ask(name, step_us, structured=structured, tenant=tenant, priority=priority, max_wait_s=max_wait_s)
        if could and not self.desk.queue.snapshot()["reserved"]:
            assert name in self.desk.running

    @precondition(lambda self: self.desk.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.desk.running)))
        self.over.add(name)
        self.desk.end(name)

    @precondition(lambda self: self.desk.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.desk.waiting)))
        self.over.add(name)
        self.desk.leave(name)

    @rule(at=st.integers(0, 3), healthy=st.booleans())
    def check(self, at: int, healthy: bool) -> None:
        self.desk.pool.replicas[at % len(self.desk.pool.replicas)].set_healthy(healthy)

    @rule(budget_us=st.sampled_from([300.0, 1000.0, 2000.0]))
    def retune(self, budget_us: float) -> None:
        if budget_us > (self.desk.pool.step_budget_us or 0):
            self.desk.pool.set_step_budget(budget_us)

    @rule(seconds=st.floats(0, 4))
    def pass_time(self, seconds: float) -> None:
        self.desk.clock.pass_s(seconds)

    @invariant()
    def no_budget_is_exceeded_but_by_one_alone(self) -> None:
        pool = self.desk.pool
        for replica in pool.replicas:
            mine = [(us, structured) for on, us, structured in self.desk.running.values() if on is replica]
            costs = [us for us, _ in mine if us]
            assert replica.booked_us == pytest.approx(sum(costs))
            assert len(costs) == replica.booked
            assert len(costs) <= 1 or sum(costs) <= (pool.step_budget_us or 0) + 1e-6
            assert not pool.max_in_flight or len(mine) <= pool.max_in_flight
            assert not pool.max_structured or sum(structured for _, structured in mine) <= pool.max_structured

    @invariant()
    def no_ticket_is_lost(self) -> None:
        desk = self.desk
        places = [*desk.running, *desk.waiting, *desk.refused, *self.over]
        assert sorted(places) == sorted(self.asked)
        assert len(desk.queue) == desk.pool.waiting == len(desk.waiting) <= desk.queue.policy.queue

    @invariant()
    def nobody_waits_who_fits_or_is_late(self) -> None:
        desk = self.desk
        for ticket in desk.waiting.values():
            assert desk.pool.is_available()
            assert ticket.until_s > desk.clock.now_s
            for replica in desk.pool.replicas:
                assert not (replica.available and desk.pool.fits(replica, ticket.step_us, ticket.structured))

    def teardown(self) -> None:
        # Whatever happened, all who wait are served when those that run have ended: nothing is stuck.
        desk = self.desk
        for replica in desk.pool.replicas:
            replica.set_healthy(True)
        for _ in range(len(self.asked) + 1):
            self.over.update(desk.running)
            desk.end(*tuple(desk.running))
        assert not desk.waiting
        assert not any(replica.reserved for replica in desk.pool.replicas)
        assert all(replica.booked_us == 0 for replica in desk.pool.replicas)


TestRequests = Requests.TestCase
