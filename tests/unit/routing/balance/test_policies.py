"""Every policy on the smallest fleet that shows what it does."""

from collections import Counter

import pytest
from asks import ask, replica, replicas

from gateway.routing.balance.affinity import GrammarAffinity, SessionAffinity
from gateway.routing.balance.ask import Ask
from gateway.routing.balance.least import Least, cache_usage, engine_load, requests, step_cost
from gateway.routing.balance.pipeline import PipelinePlan
from gateway.routing.balance.zone import ZoneAware
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.settings import PoolSettings


def admitted(pool: Pool, request: Ask | None = None, step_us: float = 0.0, structured: bool = False) -> Replica:
    taken = pool.admit_for(request or ask(), step_us, structured)
    assert taken is not None
    return taken


def pool_of(members: tuple[Replica, ...], plan: PipelinePlan, step_budget_us: float | None = None, **caps: int) -> Pool:
    return Pool("p", members, step_budget_us, balance=plan, **caps)


def scored(plan: Least | GrammarAffinity | SessionAffinity, pick: str = "best") -> PipelinePlan:
    return PipelinePlan(scores=((plan, 1.0), (Least(requests), 0.1)), pick=pick)


def test_round_robin_takes_turns_whatever_runs() -> None:
    pool = pool_of(replicas(3), PipelinePlan())
    pool.book(pool.replicas[1])
    assert [admitted(pool).name for _ in range(6)] == ["r0", "r1", "r2"] * 2


def test_turns_pass_over_replicas_that_are_down() -> None:
    pool = pool_of(replicas(3), PipelinePlan())
    pool.replicas[1].set_healthy(False)
    assert [admitted(pool).name for _ in range(4)] == ["r0", "r2"] * 2


def test_the_fewest_requests_are_counted_by_weight() -> None:
    pool = pool_of((replica("large", weight=3.0), replica("small")), PipelinePlan(scores=((Least(requests), 1.0),)))
    assert Counter(admitted(pool).name for _ in range(40)) == {"large": 30, "small": 10}


def test_the_least_step_cost_counts_work_and_not_requests() -> None:
    pool = pool_of(replicas(2), PipelinePlan(scores=((Least(step_cost), 1.0),)))
    assert admitted(pool, step_us=1000.0).name == "r0"
    assert [admitted(pool, step_us=300.0).name for _ in range(4)] == ["r1"] * 4
    assert admitted(pool, step_us=300.0).name == "r0"


def test_an_engine_that_others_keep_busy_gets_less() -> None:
    pool = pool_of(replicas(2), PipelinePlan(scores=((Least(engine_load), 1.0),)))
    pool.replicas[0].elsewhere = 5.0
    assert [admitted(pool).name for _ in range(5)] == ["r1"] * 5
    assert {admitted(pool).name, admitted(pool).name} == {"r0", "r1"}


def test_an_engine_with_a_full_cache_gets_less_and_one_that_does_not_tell_counts_as_half_full() -> None:
    members = replicas(3)
    members[0].cache_usage, members[1].cache_usage = 0.9, 0.2
    pool = pool_of(members, PipelinePlan(scores=((Least(cache_usage), 1.0),)))
    assert admitted(pool).name == "r1"
    assert pool.admit_for(ask(), excluded=[members[1]]) is members[2]


def test_one_grammar_goes_to_one_replica_and_another_elsewhere() -> None:
    pool = pool_of(replicas(4), scored(GrammarAffinity()))
    homes: dict[str, set[str]] = {}
    for _ in range(3):
        for at in range(40):
            taken = admitted(pool, ask(grammar=f"g1-{at}"))
            homes.setdefault(f"g1-{at}", set()).add(taken.name)
            pool.release(taken)
    assert all(len(each) == 1 for each in homes.values())
    assert len(set().union(*homes.values())) == 4


def test_grammars_follow_replicas_that_come_and_go_and_no_others_move() -> None:
    pool = pool_of(replicas(3), scored(GrammarAffinity()))

    def homes() -> dict[int, Replica]:
        found = {}
        for at in range(60):
            found[at] = admitted(pool, ask(grammar=f"g1-{at}"))
            pool.release(found[at])
        return found

    before = homes()
    pool.add(joined := replica("joined"))
    with_it = homes()
    pool.remove(joined)
    pool.remove(gone := pool.replicas[0])
    without = homes()

    assert 0 < sum(home is joined for home in with_it.values()) < 40
    assert all(with_it[at] in (home, joined) for at, home in before.items())
    assert all(without[at] is home for at, home in before.items() if home is not gone)
    assert gone not in without.values()


def test_a_grammar_beyond_its_home_s_share_goes_on_to_others() -> None:
    pool = pool_of(replicas(4), scored(GrammarAffinity(bound=1.25, floor=2)))
    for _ in range(40):
        admitted(pool, ask(grammar="g1-hot"))
    loads = sorted(each.in_flight for each in pool.replicas)
    assert loads[-1] <= 13  # 1.25 times 40 by 4, rounded up
    assert loads[0] >= 1


def test_requests_without_a_grammar_go_where_least_runs() -> None:
    pool = pool_of(replicas(4), scored(GrammarAffinity()))
    assert Counter(admitted(pool).name for _ in range(8)) == dict.fromkeys(["r0", "r1", "r2", "r3"], 2)


@pytest.mark.parametrize("user", [True, False])
def test_a_session_stays_where_it_is(user: bool) -> None:
    pool = pool_of(replicas(4), scored(SessionAffinity() if user else SessionAffinity(header="X-Session")))
    seen: dict[int, set[str]] = {}
    for _ in range(3):
        for at in range(20):
            request = ask(user=f"u{at}") if user else ask(headers={"x-other": "a", "x-session": f"s{at}"})
            taken = admitted(pool, request)
            seen.setdefault(at, set()).add(taken.name)
            pool.release(taken)
    assert all(len(each) == 1 for each in seen.values())
    assert len(set().union(*seen.values())) == 4


@pytest.mark.parametrize("body", [b"", b"{", b'{"user": 5}', b'{"messages": [{"role": "user"}]}', b'{"user": ""}'])
def test_what_names_no_session_is_of_none(body: bytes) -> None:
    scorer = SessionAffinity().build()
    members = replicas(2)
    assert scorer.score(Ask(ask().classification, body), members, members) == [0.0, 0.0]


def test_a_session_moves_while_its_replica_drains_and_comes_back_after() -> None:
    pool = pool_of(replicas(3), scored(SessionAffinity()))
    home = admitted(pool, ask(user="u"))
    pool.release(home)

    home.drain()
    other = admitted(pool, ask(user="u"))
    pool.release(other)
    home.undrain()

    assert other is not home
    assert admitted(pool, ask(user="u")) is home


def test_the_gateway_s_own_zone_is_kept_to_until_it_has_more_than_its_share() -> None:
    members = (replica("near-1", zone="a"), replica("near-2", zone="a"), replica("far-1", zone="b"), replica("far-2"))
    plan = PipelinePlan(filters=(ZoneAware("a", bound=1.5, floor=3),), scores=((Least(requests), 1.0),))
    pool = pool_of(members, plan)
    assert Counter(admitted(pool).name[:-2] for _ in range(6)) == {"near": 6}
    for _ in range(34):
        admitted(pool)
    near = sum(each.in_flight for each in members[:2])
    assert 20 < near <= 31
    members[0].set_healthy(False)
    members[1].set_healthy(False)
    assert admitted(pool).name.startswith("far")


def test_scores_add_up_by_their_weights() -> None:
    members = replicas(2)
    members[0].cache_usage, members[1].cache_usage = 0.0, 1.0
    plan = PipelinePlan(scores=((Least(requests), 1.0), (Least(cache_usage), 0.6)))
    pool = pool_of(members, plan)
    assert [admitted(pool).name for _ in range(4)] == ["r0", "r1", "r0", "r0"]


@pytest.mark.parametrize("pick", ["best", "p2c", "weighted"])
@pytest.mark.parametrize(
    "plan", [Least(requests), GrammarAffinity(), SessionAffinity()], ids=["least", "grammar", "user"]
)
def test_every_policy_keeps_to_what_fits(plan: Least | GrammarAffinity | SessionAffinity, pick: str) -> None:
    pool = pool_of(replicas(3), scored(plan, pick), 1000.0, max_in_flight=4, max_structured=2)
    request = ask(grammar="g1-a", user="u")
    while pool.admit_for(request, 400.0, structured=True) is not None:
        pass
    for each in pool.replicas:
        assert each.booked_us == 800.0
        assert each.structured == 2
    assert pool.can_serve()
    while pool.admit_for(request) is not None:
        pass
    assert [each.in_flight for each in pool.replicas] == [4, 4, 4]


def test_what_waits_is_not_overtaken_by_what_costs() -> None:
    pool = pool_of(replicas(2), PipelinePlan())
    pool.waiting = 1
    assert pool.admit_for(ask(), 1.0) is None
    assert pool.admit_for(ask()) is not None


def test_a_replica_that_was_tried_is_not_chosen_again() -> None:
    pool = pool_of(replicas(2), scored(SessionAffinity()))
    home = admitted(pool, ask(user="u"))
    assert pool.admit_for(ask(user="u"), excluded=[home]) not in (home, None)
    assert pool.admit_for(ask(user="u"), excluded=pool.replicas) is None


def test_trials_are_counted_with_every_policy() -> None:
    pool = pool_of(replicas(1), PipelinePlan())
    pool.replicas[0].try_out(2)
    assert [pool.admit_for(ask()) is not None for _ in range(3)] == [True, True, False]


def test_a_balancer_lives_on_while_its_plan_stays_and_may_be_changed_for_another() -> None:
    plan = PipelinePlan()
    pool = pool_of(replicas(3), plan)
    before = pool.balancer
    pool.reconfigure(PoolSettings(balance=PipelinePlan()))
    assert pool.balancer is before
    pool.reconfigure(PoolSettings(balance=scored(GrammarAffinity())))
    assert pool.balancer is not before
    pool.reconfigure(PoolSettings())
    assert pool.balancer is None
    assert pool.admit() is not None
