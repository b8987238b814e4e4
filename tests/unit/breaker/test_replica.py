from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.breaker.outcome import Outcome
from gateway.breaker.outlier import OutlierPolicy
from gateway.breaker.replica import ReplicaBreaker
from gateway.breaker.replicapolicy import ReplicaPolicy
from gateway.breaker.replicastates import TABLE, Event, ReplicaState, ReplicaTransition, Sign

CLOSED, OPEN, HALF_OPEN = ReplicaState.closed, ReplicaState.open, ReplicaState.half_open

POLICY = ReplicaPolicy(
    consecutive_faults=3,
    error_rate=0.5,
    min_requests=10,
    window_s=10,
    outlier=OutlierPolicy(min_samples=5, windows=3),
    silence_s=30,
    max_ejected_percent=50,
    ejection_s=5,
    max_ejection_s=60,
    forgive_after_s=100,
    trials=2,
    trial_successes=2,
    trial_timeout_s=20,
)
OUTCOMES = {
    "+": Outcome.ok,
    "-": Outcome.fault,
    "x": Outcome.unreachable,
    "4": Outcome.client_fault,
    "~": Outcome.back_pressure,
    "!": Outcome.over_budget,
    "?": Outcome.unknown,
}
ONLY_ROW = replace(POLICY, error_rate=0, silence_s=0)


class Ward:
    """A breaker over replicas a, b, c, … with a clock of its own, and what it told."""

    def __init__(self, size: int = 3, policy: ReplicaPolicy = POLICY) -> None:
        self.now_s = 1000.0
        self.names = "abcdefgh"[:size]
        self.down: set[str] = set()
        self.told: list[ReplicaTransition] = []
        self.breaker = ReplicaBreaker(
            "p",
            self.names,
            policy,
            clock=lambda: self.now_s,
            notify=self.told.append,
            is_up=lambda name: name not in self.down,
        )

    def see(self, name: str, outcomes: str, signature: str = "s1", age_s: float = 0.0) -> None:
        """Outcomes of requests that were sent `age_s` ago, in the letters of `OUTCOMES`."""
        for letter in outcomes:
            self.breaker.observe(name, OUTCOMES[letter], signature, self.now_s - age_s)

    def pass_s(self, seconds: float, step_s: float = 1.0) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s = min(self.now_s + step_s, until_s)
            self.breaker.tick()

    def states(self) -> str:
        return "".join({CLOSED: "c", OPEN: "o", HALF_OPEN: "h"}[self.breaker.state(name)] for name in self.names)

    def eject(self, name: str) -> None:
        self.see(name, "---")
        assert self.breaker.state(name) is OPEN

    def halve(self, name: str) -> None:
        self.eject(name)
        self.pass_s(5)
        assert self.breaker.state(name) is HALF_OPEN


def test_a_replica_that_joins_is_trusted_and_one_that_has_left_is_not_judged() -> None:
    ward = Ward(2)
    ward.breaker.add("c")
    ward.names = "abc"
    ward.eject("a")

    ward.breaker.remove("a")
    ward.see("a", "---+")

    assert [each["replica"] for each in ward.breaker.snapshot()] == ["b", "c"]
    assert {ward.breaker.state(name) for name in "bc"} == {CLOSED}


def test_one_that_follows_another_of_its_name_begins_anew() -> None:
    ward = Ward(3)
    ward.eject("a")

    ward.breaker.add("a")

    assert ward.states() == "ccc"


def test_the_last_that_is_left_when_others_leave_is_needed() -> None:
    ward = Ward(3)
    ward.eject("a")

    for name in "bc":
        ward.breaker.remove(name)

    assert ward.breaker.state("a") is CLOSED


def test_other_limits_hold_from_the_next_fault_on() -> None:
    ward = Ward(3)
    ward.see("a", "--")

    ward.breaker.reconfigure(replace(POLICY, consecutive_faults=4))

    ward.see("a", "-")
    assert ward.breaker.state("a") is CLOSED
    ward.see("a", "-")
    assert ward.breaker.state("a") is OPEN


def test_the_table_has_a_way_back_from_every_state_and_one_way_out() -> None:
    ways_back = {before for (before, event), after in TABLE.items() if after is CLOSED}
    assert ways_back == {OPEN, HALF_OPEN}
    assert {event for (_, event), after in TABLE.items() if after is OPEN} == {Event.sick}


@pytest.mark.parametrize(
    ("outcomes", "ejected"),
    [
        ("---", True),
        ("xxx", True),
        ("-x-", True),
        ("--+-", False),
        ("--", False),
        ("4444444444", False),  # sglang#25811
        ("~~~~~~~~~~", False),  # sglang#39464
        ("!!!!!!!!!!", False),
        ("??????????", False),
        ("-4-~-", True),  # what says nothing is no answer either
        ("--4+--", False),
    ],
)
def test_faults_in_a_row_eject_and_nothing_else_does(outcomes: str, ejected: bool) -> None:
    ward = Ward(policy=ONLY_ROW)

    ward.see("a", outcomes)

    assert ward.states() == ("occ" if ejected else "ccc")


def test_an_ejection_is_told_with_what_was_seen() -> None:
    ward = Ward()

    ward.see("b", "---")

    assert ward.told == [
        ReplicaTransition(
            "p", "b", CLOSED, OPEN, Event.sick, "3 requests failed in a row", Sign.faults_in_a_row, until_s=1005.0
        )
    ]


@pytest.mark.parametrize(
    ("outcomes", "ejected"),
    [
        ("+-" * 5, True),
        ("+-" * 4, False),  # too few
        ("++-" * 10, False),
        ("+-" * 4 + "4444", False),  # nobody's, so not counted
        ("+--" * 4, True),
    ],
)
def test_half_of_the_requests_failing_ejects_if_they_are_enough(outcomes: str, ejected: bool) -> None:
    ward = Ward()

    ward.see("a", outcomes)

    assert ward.states() == ("occ" if ejected else "ccc")
    assert not ejected or ward.told[0].sign is Sign.error_rate


def test_faults_of_long_ago_are_not_counted() -> None:
    ward = Ward()
    for _ in range(5):
        ward.see("a", "-+")
        ward.pass_s(5)

    assert ward.states() == "ccc"
    assert ward.breaker.snapshot()[0]["faults"] <= 4  # type: ignore[operator]


def test_a_signature_that_fails_wherever_it_runs_is_not_held_against_replicas() -> None:
    ward = Ward()
    for _ in range(10):
        for name in ward.names:
            ward.see(name, "-", signature="poison")

    assert ward.states() == "ccc"

    for _ in range(3):
        ward.see("c", "-", signature="plain")
    assert ward.states() == "cco"


@pytest.mark.parametrize("sick", ["a", "ab"])
def test_a_signature_that_is_answered_elsewhere_is_a_witness_against_the_replica(sick: str) -> None:
    ward = Ward(size=4)
    for _ in range(4):
        for name in ward.names:
            ward.see(name, "-" if name in sick else "+", signature="plain")

    assert ward.states() == "".join("o" if name in sick else "c" for name in ward.names)


def test_what_never_arrived_is_not_the_signatures_fault() -> None:
    ward = Ward()

    for _ in range(3):
        ward.see("a", "x")
        ward.see("b", "x")

    assert ward.states() == "occ"  # and not both: c alone must not carry the pool


@pytest.mark.parametrize(
    ("size", "percent", "most"), [(1, 50, 0), (2, 50, 1), (3, 50, 1), (4, 50, 2), (3, 100, 2), (5, 10, 1), (8, 25, 2)]
)
def test_no_more_than_a_share_of_the_pool_is_ejected_and_never_the_last(size: int, percent: float, most: int) -> None:
    ward = Ward(size, replace(POLICY, max_ejected_percent=percent))

    for name in ward.names:
        ward.see(name, "x" * 20)

    assert ward.states().count("o") == most
    assert len(ward.told) == most


def test_what_is_not_ejected_though_sick_is_said() -> None:
    ward = Ward(1)

    ward.see("a", "-----")

    (only,) = ward.breaker.snapshot()
    assert only["held"] == "5 requests failed in a row; not ejected: no other replica of the pool is up and trusted"


def test_replicas_that_are_down_do_not_carry_the_pool() -> None:
    ward = Ward(2)
    ward.down.add("b")

    ward.see("a", "-----")

    assert ward.states() == "cc"


def test_an_ejected_replica_comes_back_when_it_is_all_that_is_left() -> None:
    ward = Ward(2)
    ward.eject("a")

    ward.down.add("b")
    ward.breaker.health_changed()

    assert ward.states() == "cc"
    assert ward.told[-1].event is Event.needed


def test_an_ejected_replica_that_is_down_does_not_come_back_for_it() -> None:
    ward = Ward(2)
    ward.eject("a")

    ward.down.update("ab")
    ward.breaker.health_changed()

    assert ward.states() == "oc"


def test_time_out_doubles_with_each_ejection_up_to_a_limit_and_is_forgiven() -> None:
    ward = Ward(policy=replace(POLICY, forgive_after_s=1000))
    outs = []
    for _ in range(6):
        ward.eject("a")
        until_s = ward.told[-1].until_s
        assert until_s is not None
        outs.append(until_s - ward.now_s)
        ward.pass_s(outs[-1])
        ward.see("a", "++")
        assert ward.states() == "ccc"
    assert outs == [5, 10, 20, 40, 60, 60]

    ward.pass_s(1000)
    ward.eject("a")
    assert ward.told[-1].until_s == ward.now_s + 5


def test_a_half_open_replica_takes_a_few_trials_at_a_time_and_closes_after_enough_good_ones() -> None:
    ward = Ward()
    ward.halve("a")
    assert (ward.told[-1].event, ward.told[-1].trials) == (Event.served, 2)

    ward.breaker.trial_began("a")
    ward.breaker.trial_began("a")
    ward.see("a", "+")
    assert (ward.states(), ward.told[-1].trials) == ("hcc", 1)
    ward.see("a", "+")
    assert (ward.states(), ward.told[-1].event) == ("ccc", Event.recovered)


@pytest.mark.parametrize("outcome", ["-", "x"])
def test_one_failed_trial_opens_again_for_longer(outcome: str) -> None:
    ward = Ward()
    ward.halve("a")

    ward.see("a", "+" + outcome)

    assert ward.states() == "occ"
    assert ward.told[-1].sign is Sign.trial_failed
    assert ward.told[-1].until_s == ward.now_s + 10


@pytest.mark.parametrize("outcome", "4~!?")
def test_a_trial_that_decides_nothing_makes_room_for_another(outcome: str) -> None:
    ward = Ward()
    ward.halve("a")
    ward.breaker.trial_began("a")
    ward.breaker.trial_began("a")

    ward.see("a", outcome)

    assert (ward.states(), ward.told[-1].event, ward.told[-1].trials) == ("hcc", Event.answered, 1)


def test_a_trial_of_a_signature_that_fails_everywhere_decides_nothing() -> None:
    ward = Ward()
    ward.halve("a")
    ward.see("b", "-", signature="poison")

    ward.see("a", "-", signature="poison")

    assert ward.states() == "hcc"


def test_requests_sent_before_the_trial_decide_nothing() -> None:
    ward = Ward()
    before_s = ward.now_s
    ward.halve("a")

    for _ in range(5):
        ward.breaker.observe("a", Outcome.ok, "s1", before_s)
        ward.breaker.observe("a", Outcome.fault, "s1", before_s)

    assert ward.states() == "hcc"


def test_trials_that_are_lost_open_again() -> None:
    ward = Ward()  # sglang#31206: half-open for ever
    ward.halve("a")
    ward.breaker.trial_began("a")
    ward.breaker.trial_began("a")

    ward.pass_s(19)
    assert ward.states() == "hcc"
    ward.pass_s(1)

    assert ward.states() == "occ"
    assert (ward.told[-1].sign, ward.told[-1].reason) == (
        Sign.trial_lost,
        "2 trial requests had no answer within 20 s",
    )


def test_trials_whose_clients_lose_patience_open_again() -> None:
    ward = Ward()
    ward.halve("a")
    ward.breaker.trial_began("a")
    ward.breaker.trial_began("a")

    ward.see("a", "?")
    assert ward.states() == "hcc"
    ward.see("a", "?")

    assert ward.states() == "occ"
    assert ward.told[-1].reason == "the clients of 2 trial requests left without an answer"


def test_clients_that_leave_after_the_first_byte_say_nothing() -> None:
    ward = Ward()
    ward.halve("a")
    ward.breaker.trial_began("a")
    ward.pass_s(1)
    ward.breaker.observe_progress("a", 1, ward.now_s)

    ward.see("a", "?????")

    assert ward.states() == "hcc"


@pytest.mark.parametrize("proof", ["first byte", "progress", "busy"])
def test_trials_that_take_long_close_it_if_it_gave_a_sign_of_life(proof: str) -> None:
    ward = Ward()
    ward.halve("a")
    ward.breaker.trial_began("a")
    ward.breaker.trial_began("a")
    ward.pass_s(3)
    if proof == "first byte":
        ward.breaker.observe_first_byte("a", 3.0, ward.now_s)
    elif proof == "progress":
        ward.breaker.observe_progress("a", 1, ward.now_s)
    else:
        ward.see("a", "~")

    ward.pass_s(17)

    assert (ward.states(), ward.told[-1].event) == ("ccc", Event.recovered)


def test_a_half_open_replica_that_nobody_needs_waits_for_its_trial() -> None:
    ward = Ward()
    ward.halve("a")

    ward.pass_s(500)

    assert ward.states() == "hcc"
    ward.see("a", "++")
    assert ward.states() == "ccc"


def window(ward: Ward, observe: Callable[[str, float], None], values: Iterable[float], count: int = 10) -> None:
    """One window in which each replica in turn shows its value `count` times."""
    for name, value in zip(ward.names, values, strict=False):
        for _ in range(count):
            observe(name, value)
    ward.pass_s(10)


@pytest.mark.parametrize(
    ("values", "states"),
    [
        ((4.0, 0.2, 0.2), "occ"),
        ((4.0, 0.2, 0.3, 0.25), "occc"),
        ((0.6, 0.2, 0.2), "ccc"),  # three times as long, but by less than matters
        ((2.9, 1.0, 1.0), "ccc"),  # less than three times
        ((3.1, 1.0, 1.0), "occ"),
        ((4.0, 0.2), "cc"),  # of two nobody can say which is the odd one
        ((9.0,), "c"),
        ((4.0, 4.0, 4.0), "ccc"),
        ((4.0, 0.5, 1.0, 2.0, 1.5), "ccccc"),  # their own spread is as wide
        ((0.01, 1.0, 1.0), "ccc"),  # quick is not sick
    ],
)
def test_a_replica_far_slower_to_its_first_byte_than_the_others_is_ejected(
    values: tuple[float, ...], states: str
) -> None:
    ward = Ward(len(values))

    for _ in range(3):
        window(ward, ward.breaker.observe_first_byte, values)

    assert ward.states() == states
    assert all(told.sign is Sign.slow_first_byte for told in ward.told)


def test_slow_steps_eject_alike() -> None:
    ward = Ward()

    for _ in range(3):
        window(ward, ward.breaker.observe_step, (90_000.0, 20_000.0, 22_000.0))

    assert ward.states() == "occ"
    assert ward.told[0].reason == "median step without hooks 90 ms, others 21 ms, 3 windows in a row"


def test_windows_must_follow_one_another() -> None:
    ward = Ward()
    for slow in (9.0, 9.0, 0.2, 9.0, 9.0):
        window(ward, ward.breaker.observe_first_byte, (slow, 0.2, 0.2))
    assert ward.states() == "ccc"

    window(ward, ward.breaker.observe_first_byte, (9.0, 0.2, 0.2))
    assert ward.states() == "occ"


def test_few_samples_are_no_verdict() -> None:
    ward = Ward()
    for _ in range(10):
        window(ward, ward.breaker.observe_first_byte, (9.0, 0.2, 0.2), count=4)

    assert ward.states() == "ccc"


def test_one_long_prompt_among_many_changes_no_median() -> None:
    ward = Ward()
    for _ in range(5):
        ward.breaker.observe_first_byte("a", 60.0)
        window(ward, ward.breaker.observe_first_byte, (0.2, 0.2, 0.2))

    assert ward.states() == "ccc"


def test_silence_while_others_go_on_ejects() -> None:
    ward = Ward()
    silent_since_s = ward.now_s
    for _ in range(31):
        ward.breaker.observe_progress("a", 3, silent_since_s)
        ward.breaker.observe_progress("b", 3, ward.now_s)
        ward.breaker.observe_progress("c", 0, silent_since_s)
        ward.pass_s(1)

    assert ward.states() == "occ"
    assert ward.told[0].sign is Sign.silence


def test_clients_that_leave_a_silent_replica_do_not_hide_it() -> None:
    ward = Ward()
    silent_since_s = ward.now_s
    for at in range(60):
        ward.breaker.observe_progress("a", int(at % 15 < 10), silent_since_s)
        ward.breaker.observe_progress("b", 3, ward.now_s)
        ward.pass_s(1)

    assert (ward.told[0].replica, ward.told[0].sign) == ("a", Sign.silence)


@pytest.mark.parametrize("case", ["all are silent", "nothing runs", "it rests in between", "it moves a little"])
def test_silence_alone_is_no_sign(case: str) -> None:
    ward = Ward()
    began_s = ward.now_s
    for at in range(150):
        in_flight, last_s, others_s = 3, began_s, ward.now_s
        if case == "all are silent":
            others_s = began_s
        elif case == "nothing runs":
            in_flight = 0
        elif case == "it rests in between":
            in_flight = 3 if at % 60 < 25 else 0
        else:
            last_s = ward.now_s - at % 29
        ward.breaker.observe_progress("a", in_flight, last_s)
        ward.breaker.observe_progress("b", 3, others_s)
        ward.pass_s(1)

    assert ward.states() == "ccc"


def test_signs_can_be_turned_off() -> None:
    off = replace(POLICY, consecutive_faults=0, error_rate=0, silence_s=0, outlier=OutlierPolicy(windows=0))
    ward = Ward(policy=off)
    for _ in range(5):
        ward.see("a", "-" * 20)
        ward.breaker.observe_progress("a", 1, 0.0)
        ward.breaker.observe_progress("b", 1, ward.now_s)
        window(ward, ward.breaker.observe_first_byte, (9.0, 0.2, 0.2), count=30)

    assert ward.states() == "ccc"


def test_a_snapshot_says_where_each_stands_and_why() -> None:
    ward = Ward()
    ward.see("b", "++")
    ward.eject("a")
    ward.pass_s(2)

    first, second, _ = ward.breaker.snapshot()

    assert first == {
        "replica": "a",
        "state": "open",
        "since_s": 2.0,
        "sign": "faults_in_a_row",
        "reason": "3 requests failed in a row",
        "held": None,
        "back_in_s": 3.0,
        "ejections": 1,
        "faults_in_a_row": 0,
        "answered": 0,
        "faults": 0,
        "trials_running": 0,
    }
    assert (second["state"], second["answered"], second["back_in_s"]) == ("closed", 2, None)


class Pool(RuleBasedStateMachine):
    """Anything that can be observed of a pool, in any order: what must always hold."""

    @initialize(size=st.integers(1, 5), percent=st.sampled_from([0.0, 30.0, 50.0, 100.0]))
    def begin(self, size: int, percent: float) -> None:
        self.ward = Ward(size, replace(POLICY, max_ejected_percent=percent))
        self.states = dict.fromkeys(self.ward.names, CLOSED)
        self.seen = 0

    def name(self, at: int) -> str:
        return self.ward.names[at % len(self.ward.names)]

    @rule(
        at=st.integers(0, 4),
        outcomes=st.text("+-x4~!?", min_size=1, max_size=6),
        signature=st.sampled_from(["", "s1", "s2", "s3"]),
        age_s=st.sampled_from([0.0, 3.0, 50.0]),
    )
    def observe(self, at: int, outcomes: str, signature: str, age_s: float) -> None:
        self.ward.see(self.name(at), outcomes, signature, age_s)

    @rule(at=st.integers(0, 4))
    def try_one(self, at: int) -> None:
        self.ward.breaker.trial_began(self.name(at))

    @rule(at=st.integers(0, 4), value=st.sampled_from([0.1, 0.2, 5.0]))
    def first_bytes(self, at: int, value: float) -> None:
        for _ in range(6):
            self.ward.breaker.observe_first_byte(self.name(at), value, self.ward.now_s)

    @rule(at=st.integers(0, 4), in_flight=st.integers(0, 2), age_s=st.sampled_from([0.0, 20.0, 100.0]))
    def progress(self, at: int, in_flight: int, age_s: float) -> None:
        self.ward.breaker.observe_progress(self.name(at), in_flight, self.ward.now_s - age_s)

    @rule(at=st.integers(0, 4))
    def go_down_or_up(self, at: int) -> None:
        self.ward.down ^= {self.name(at)}
        self.ward.breaker.health_changed()

    @rule(seconds=st.sampled_from([1.0, 5.0, 12.0, 90.0]))
    def wait(self, seconds: float) -> None:
        self.ward.pass_s(seconds)

    @invariant()
    def the_pool_is_never_emptied(self) -> None:
        ward = self.ward
        up = [name for name in ward.names if name not in ward.down]
        assert not up or any(ward.breaker.state(name) is CLOSED for name in up)
        out = sum(ward.breaker.state(name) is not CLOSED for name in ward.names)
        assert out < len(ward.names) or not out
        assert out <= max(1, int(len(ward.names) * ward.breaker.policy.max_ejected_percent / 100))

    @invariant()
    def what_was_told_is_what_happened(self) -> None:
        for told in self.ward.told[self.seen :]:
            assert self.states[told.replica] is told.before
            assert TABLE[told.before, told.event] is told.after
            assert (told.until_s is not None) == (told.after is OPEN)
            assert 0 <= told.trials <= POLICY.trials
            self.states[told.replica] = told.after
        self.seen = len(self.ward.told)
        assert {name: self.ward.breaker.state(name) for name in self.ward.names} == self.states

    def teardown(self) -> None:
        # From wherever it stands, every replica comes back when it behaves.
        ward = self.ward
        ward.down.clear()
        ward.pass_s(POLICY.max_ejection_s + 1)
        for name in ward.names:
            if ward.breaker.state(name) is HALF_OPEN:
                ward.breaker.trial_began(name)
                ward.see(name, "++")
        assert set(ward.states()) == {"c"}


TestPool = Pool.TestCase
