from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.routing.pool import Pool
from gateway.routing.replica import Replica


def pool_with(
    loads: list[int | None], step_budget_us: float | None = None, max_in_flight: int = 0, max_structured: int = 0
) -> Pool:
    """One replica for each entry: its exchanges in flight, or None for one that is down."""
    replicas = tuple(
        Replica(f"r{at}", f"http://h:{at}", "h", at, available=load is not None) for at, load in enumerate(loads)
    )
    pool = Pool("p", replicas, step_budget_us, max_in_flight=max_in_flight, max_structured=max_structured)
    for replica, load in zip(replicas, loads, strict=True):
        for _ in range(load or 0):
            pool.book(replica)
    return pool


@pytest.mark.parametrize(
    ("loads", "excluded", "picked"),
    [
        ([3, 1, 2], [], 1),
        ([0], [], 0),
        ([None, 9, None], [], 1),
        ([3, 1, 2], [1], 2),
        ([3, 1, 2], [1, 2], 0),
        ([3, 1, 2], [0, 1, 2], None),
        ([0, 900], [0], 1),
        ([None, 1], [1], None),
        ([None, None], [], None),
        ([], [], None),
    ],
)
def test_the_available_replica_with_the_least_in_flight_takes_the_request(
    loads: list[int | None], excluded: list[int], picked: int | None
) -> None:
    pool = pool_with(loads)

    replica = pool.admit(excluded=[pool.replicas[at] for at in excluded])

    assert replica is (None if picked is None else pool.replicas[picked])


@pytest.mark.parametrize("load", [0, 5])
@pytest.mark.parametrize("size", [1, 3, 64, 200])
def test_equals_take_turns(size: int, load: int) -> None:
    pool = pool_with([load] * size)

    turns = []
    for _ in range(2 * size):
        replica = pool.admit()
        assert replica is not None
        turns.append(replica)
        pool.release(replica)

    assert turns == [*pool.replicas, *pool.replicas]


def test_equals_take_turns_beside_busier_and_dead_ones() -> None:
    pool = pool_with([5, 7, 5, None])

    counts: Counter[str] = Counter()
    for _ in range(10):
        replica = pool.admit()
        assert replica is not None
        counts[replica.name] += 1
        pool.release(replica)

    assert counts == {"r0": 5, "r2": 5}


def test_a_pool_is_available_while_any_replica_is() -> None:
    assert pool_with([None, 4]).is_available()
    assert not pool_with([None, None]).is_available()
    assert not pool_with([]).is_available()


@pytest.mark.parametrize(
    ("loads", "excluded", "can_serve"),
    [([0, 0], [], True), ([0, 0], [0], True), ([0, 0], [0, 1], False), ([0, None], [0], False), ([0, None], [1], True)],
)
def test_a_pool_says_whether_anything_is_left_beside_what_was_tried(
    loads: list[int | None], excluded: list[int], can_serve: bool
) -> None:
    pool = pool_with(loads)

    assert pool.can_serve([pool.replicas[at] for at in excluded]) is can_serve


def test_a_replica_belongs_to_one_pool() -> None:
    replica = Replica("r", "http://h:1", "h", 1)
    Pool("p", (replica,))

    with pytest.raises(ValueError, match="'r' is in a pool already"):
        Pool("q", (replica,))


@pytest.mark.parametrize(
    ("budget_us", "running", "step_us", "fits"),
    [
        (1000.0, [], 1000.0, True),
        (1000.0, [600.0], 400.0, True),
        (1000.0, [600.0], 400.1, False),
        (1000.0, [1000.0], 0.0, True),  # what costs nothing is never in the way
        (1000.0, [0.0, 0.0], 5000.0, True),  # too big for any budget: alone, plain requests beside it
        (1000.0, [1.0], 5000.0, False),
        (1000.0, [5000.0], 1.0, False),
        (None, [5000.0], 5000.0, True),
        (0.3, [0.1, 0.1], 0.1, True),  # 0.1 three times is more than 0.3, in floats
    ],
)
def test_the_sum_of_step_costs_stays_within_the_budget(
    budget_us: float | None, running: list[float], step_us: float, fits: bool
) -> None:
    pool = pool_with([0])
    pool.set_step_budget(budget_us)
    for cost in running:
        pool.book(pool.replicas[0], cost)

    assert (pool.admit(step_us) is not None) is fits


def test_a_request_goes_past_a_less_busy_replica_where_it_does_not_fit() -> None:
    pool = pool_with([0, 3, 5], step_budget_us=1000)
    pool.book(pool.replicas[0], 900.0)

    assert pool.admit(200.0) is pool.replicas[1]


def test_no_more_requests_run_on_a_replica_than_its_pool_allows() -> None:
    pool = pool_with([1, 2, 2], max_in_flight=2)

    assert pool.admit() is pool.replicas[0]
    assert pool.admit() is None

    pool.release(pool.replicas[2])
    assert pool.admit() is pool.replicas[2]


def test_no_more_structured_requests_run_on_a_replica_than_its_pool_allows() -> None:
    pool = pool_with([0, 0], max_structured=2)

    for _ in range(4):
        assert pool.admit(1.0, True) is not None
    assert pool.admit(1.0, True) is None
    assert pool.admit(1.0, False) is not None

    pool.release(pool.replicas[1], 1.0, True)
    assert pool.admit(1.0, True) is pool.replicas[1]


def test_many_additions_and_subtractions_leave_nothing_behind() -> None:
    pool = pool_with([0], step_budget_us=1000)
    replica = pool.replicas[0]
    for at in range(1000):
        pool.book(replica, 0.1 * at)
    for at in reversed(range(1000)):
        pool.release(replica, 0.1 * at)

    assert replica.booked_us == 0.0


def test_a_replica_is_available_while_it_is_up_and_trusted() -> None:
    pool = pool_with([None])
    replica = pool.replicas[0]

    seen = []
    changes: list[Callable[[], None]] = [
        lambda: replica.set_healthy(True),
        replica.eject,
        lambda: replica.set_healthy(False),
        lambda: replica.set_healthy(True),  # the health check knows nothing of what its breaker holds against it
        replica.readmit,
        lambda: replica.set_healthy(False),
        replica.readmit,
    ]
    for change in changes:
        change()
        assert pool.is_available() is replica.available
        seen.append(replica.available)

    assert seen == [True, False, False, False, True, False, False]


def test_a_replica_on_trial_takes_as_many_requests_as_it_has_trials() -> None:
    pool = pool_with([0, 7])
    on_trial, other = pool.replicas
    taken: list[Replica] = []
    pool.on_trial = taken.append
    on_trial.try_out(2)

    assert [pool.admit() for _ in range(4)] == [on_trial, on_trial, other, other]
    assert taken == [on_trial, on_trial]

    pool.release(on_trial)
    assert pool.admit() is other  # what a trial showed is for its breaker to say

    on_trial.readmit()
    assert pool.admit() is on_trial


class Replicas(RuleBasedStateMachine):
    """A pool beside the plainest account of it: which replicas are up, and what runs on them."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool_with([None] * 5, step_budget_us=1000, max_in_flight=6, max_structured=3)
        self.running: list[tuple[Replica, float, bool]] = []

    def sums(self, replica: Replica) -> tuple[int, float, int]:
        mine = [(step_us, structured) for on, step_us, structured in self.running if on is replica]
        return len(mine), sum(step_us for step_us, _ in mine), sum(structured for _, structured in mine)

    def fits(self, replica: Replica, step_us: float, structured: bool) -> bool:
        in_flight, booked_us, grammars = self.sums(replica)
        within = not step_us or not booked_us or booked_us + step_us <= 1000
        return replica.available and within and in_flight < 6 and not (structured and grammars >= 3)

    @rule(at=st.integers(0, 4), healthy=st.booleans())
    def check(self, at: int, healthy: bool) -> None:
        self.pool.replicas[at].set_healthy(healthy)

    @rule(at=st.integers(0, 4), trials=st.none() | st.integers(0, 3))
    def judge(self, at: int, trials: int | None) -> None:
        replica = self.pool.replicas[at]
        if trials is None:
            replica.readmit()
        elif trials:
            replica.try_out(trials)
        else:
            replica.eject()

    @rule(
        step_us=st.sampled_from([0.0, 50.0, 300.0, 700.0, 3000.0]),
        structured=st.booleans(),
        excluded=st.sets(st.integers(0, 4), max_size=2),
    )
    def begin(self, step_us: float, structured: bool, excluded: set[int]) -> None:
        tried = [self.pool.replicas[at] for at in excluded]
        could = [r for r in self.pool.replicas if r not in tried and self.fits(r, step_us, structured)]
        least = min((replica.in_flight for replica in could), default=None)

        replica = self.pool.admit(step_us, structured, tried)

        assert (replica is not None) == bool(could)
        if replica is not None:
            assert replica in could
            assert replica.in_flight - 1 == least
            self.running.append((replica, step_us, structured))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.running) - 1))
        self.pool.release(*self.running.pop(at))

    @invariant()
    def counts_are_exact(self) -> None:
        for replica in self.pool.replicas:
            in_flight, booked_us, structured = self.sums(replica)
            assert (replica.in_flight, replica.structured) == (in_flight, structured)
            assert replica.booked_us == pytest.approx(booked_us)
            assert booked_us <= 1000 or replica.booked == 1
        assert self.pool.is_available() == any(replica.available for replica in self.pool.replicas)


TestReplicas = Replicas.TestCase
