"""How a worker holds to its part of the budgets, on real pools and queues."""

import json
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.call import Attempt
from gateway.control.config import Config, parse_config
from gateway.routing.admission import AdmissionPolicy, AdmissionQueue
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.ticket import Ticket
from gateway.workers.lending import Lending
from gateway.workers.messages import Demand, Shares


class Timer:
    def cancel(self) -> None:
        """There is no time in these tests."""


class Worker:
    """A worker with one pool of one replica."""

    def __init__(self, **pool: Any) -> None:
        self.lending = Lending({"p": 0.25})
        parts = {"default_pool": "p", "pools": {"p": {"replicas": ["http://127.0.0.1:1"], **pool}}}
        self.config: Config = parse_config(json.dumps(parts))
        self.replica = Replica("r", "http://127.0.0.1:1", "127.0.0.1", 1, pool="p", available=True)
        admission = self.config.pools["p"].admission
        self.pool = Pool(
            "p",
            (self.replica,),
            self.config.pools["p"].step_budget_us,
            max_in_flight=admission.max_in_flight,
            max_structured=admission.max_structured,
        )
        self.queue = AdmissionQueue(self.pool, AdmissionPolicy(), clock=lambda: 0.0, call_at=lambda *_: Timer())
        self.admitted: list[float] = []
        self.hold()

    def hold(self) -> None:
        self.lending.hold(self.config.pools, {"p": self.pool})

    def news(self) -> Demand | None:
        news = self.lending.news(self.config.pools, {"p": self.pool}, {"p": self.queue})
        return None if news is None else news.pools.get("p")

    def grant(self, number: int, part: float, *, alone: bool = False) -> None:
        self.lending.grant(Shares(number, {"p": part}, ["p"] if alone else []))
        self.hold()

    def wait(self, step_us: float) -> None:
        self.queue.wait(Ticket(step_us, False, lambda _: self.admitted.append(step_us), lambda _: None))


def test_each_limit_is_held_to_in_part_and_none_becomes_no_limit() -> None:
    worker = Worker(step_budget_us=1000, admission={"max_in_flight": 10, "max_structured": 2})
    assert (worker.pool.step_budget_us, worker.pool.max_in_flight, worker.pool.max_structured) == (250, 2, 1)
    worker.grant(1, 0.5)
    assert (worker.pool.step_budget_us, worker.pool.max_in_flight, worker.pool.max_structured) == (500, 5, 1)


def test_breakers_judge_a_step_by_the_whole_budget_whoever_sent_what_is_in_it() -> None:
    worker = Worker(step_budget_us=1000)
    call: Any = SimpleNamespace(signature="s1-1", tenant="acme", costly=True)
    link: Any = SimpleNamespace(itl=None, replica=worker.replica, terms=SimpleNamespace(hard_limit_us=None))

    attempt = Attempt(cast(Any, None), call, link, worker.pool, "id", 0.0)

    assert (worker.pool.step_budget_us, attempt.origin.budget_us) == (250, 1000)


def test_a_pool_without_limits_is_left_alone_and_says_nothing() -> None:
    worker = Worker()
    worker.grant(1, 0.5)
    assert (worker.pool.step_budget_us, worker.pool.max_in_flight, worker.pool.alone_us) == (None, 0, math.inf)
    assert worker.news() is None


def test_it_says_something_only_when_it_has_changed() -> None:
    worker = Worker(step_budget_us=1000)
    assert worker.news() == Demand(part=0.25, held=0.0, waiting=0, wants_alone=False, has_alone=False)
    assert worker.news() is None
    worker.pool.book(worker.replica, 101.0)
    assert worker.news() == Demand(part=0.25, held=0.11, waiting=0, wants_alone=False, has_alone=False)
    assert worker.news() is None
    # That it has heard is news, too.
    worker.grant(1, 0.25)
    assert worker.news() is not None


def test_more_room_is_offered_to_those_who_wait() -> None:
    worker = Worker(step_budget_us=1000)
    worker.pool.book(worker.replica, 200.0)
    worker.wait(150.0)
    assert (worker.admitted, worker.pool.waiting) == ([], 1)
    worker.grant(1, 0.5)
    assert (worker.admitted, worker.pool.waiting) == ([150.0], 0)


@pytest.mark.parametrize("step_us", [251.0, 5000.0])
def test_what_costs_more_than_the_part_waits_for_the_right_to_run_alone(step_us: float) -> None:
    worker = Worker(step_budget_us=1000)
    assert worker.pool.admit(step_us) is None
    worker.wait(step_us)
    demand = worker.news()
    assert demand is not None
    assert (demand.waiting, demand.wants_alone, demand.has_alone) == (1, True, False)
    worker.grant(1, 0.25, alone=True)
    assert worker.admitted == [step_us]
    # Taken back while it runs: it has it until that has ended.
    worker.grant(2, 0.25)
    demand = worker.news()
    assert demand is not None
    assert (demand.wants_alone, demand.has_alone) == (False, True)
    worker.pool.release(worker.replica, step_us)
    demand = worker.news()
    assert demand is not None
    assert demand.has_alone is False
