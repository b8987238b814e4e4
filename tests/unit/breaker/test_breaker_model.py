"""The signature breaker against a model of a few lines, under any sequence of events that hypothesis can think of."""

from breaker_world import BUDGET_US, HARD_US, World
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.breaker.record import Kind, State


class Model:
    """What the breaker should do. Whole seconds, so that nothing hangs on rounding."""

    def __init__(self) -> None:
        self.state = State.closed
        self.trips = 0
        self.closed_since = 0.0
        self.until = 0.0
        self.over: list[float] = []
        self.good = 0
        self.next_probe = 0.0
        self.probe: dict[str, float] | None = None

    def move(self, state: State, now: float) -> None:
        self.state = state
        self.over = []
        self.closed_since = now

    def open(self, now: float) -> None:
        if self.state is State.closed:
            self.trips = max(0, self.trips - int((now - self.closed_since) // 1800))
        self.trips += 1
        self.until = now + min(3600, 30 * 2 ** (self.trips - 1))
        self.move(State.open, now)

    def tick(self, now: float) -> None:
        probe = self.probe
        if probe is not None and (now - probe["began"] >= 60 or now - probe.get("ended", now) >= 2):
            self.probe = None
            if self.state is State.half_open and probe["number"] == (self.closed_since, self.number):
                self.judge(probe, now)
        if self.state is State.open and now >= self.until:
            self.move(State.half_open, now)
            self.good, self.number, self.next_probe = 0, 0, self.until

    def judge(self, probe: dict[str, float], now: float) -> None:
        broke_off = "ended" in probe and not probe["answered"]
        seen = probe["steps"] > 0 or probe.get("watched", False)
        doubtful = probe["over"] * 2 >= probe["steps"] > 0
        if seen and not doubtful and not broke_off:
            self.good += 1
        if self.good == 3:
            self.move(State.closed, now)
        else:
            self.number += 1
            self.next_probe = now + 2 * 2**self.good

    number = 0


class Breaker(RuleBasedStateMachine):
    """One signature of one gateway."""

    def __init__(self) -> None:
        super().__init__()
        self.world, self.model, self.requests = World(), Model(), 0

    def step(self, own_us: float) -> None:
        self.requests += 1
        self.world.step(own_us, request_id=f"r{self.requests}")

    @rule(seconds=strategies.sampled_from([1, 1, 2, 5, 9, 31, 61, 300, 2000]))
    def time_passes(self, seconds: int) -> None:
        self.world.at_s += seconds
        self.world.trust.tick()
        self.model.tick(self.world.at_s)

    @rule()
    def a_step_over_budget(self) -> None:
        self.world.at_s += 1
        self.step(BUDGET_US + 1)
        if self.model.state is State.closed:
            self.model.over.append(self.world.at_s)
            if len(self.model.over) >= 3 and self.model.over[-1] - self.model.over[-3] <= 10:
                self.model.open(self.world.at_s)

    @rule()
    def a_step_over_the_hard_limit(self) -> None:
        self.step(HARD_US + 1)
        if self.model.state is State.closed:
            self.model.open(self.world.at_s)

    @rule(own_us=strategies.floats(0, BUDGET_US))
    def a_step_within_the_budget(self, own_us: float) -> None:
        self.step(own_us)

    @rule(act=strategies.sampled_from(["add", "pin", "release"]))
    def a_person_acts(self, act: str) -> None:
        getattr(self.world.trust, act)(Kind.signature, "s1-a", "kim", "because")
        model, now = self.model, self.world.at_s
        if act == "pin":
            model.move(State.pinned, now)
        elif act == "release":
            model.move(State.closed, now)
            model.trips = 0
        elif model.state is not State.pinned:
            # As long as after as many trips as it has, those long ago included: nothing has tripped now.
            known = self.world.trust.record(Kind.signature, "s1-a")
            model.trips = known.trips
            model.until = now + min(3600, 30 * 2 ** (max(1, model.trips) - 1))
            model.move(State.open, now)

    @precondition(lambda self: self.model.probe is None)
    @rule()
    def a_request_is_offered_as_a_probe_and_leased(self) -> None:
        self.world.at_s += 1  # a second after any other offer
        now = self.world.at_s
        if self.model.state is State.open and now >= self.model.until:
            self.model.tick(now)
        began = self.world.begin_probe("probe")
        assert began is (self.model.state is State.half_open and now >= self.model.next_probe)
        if began:
            self.model.probe = {
                "began": now,
                "number": (self.model.closed_since, self.model.number),
                "steps": 0,
                "over": 0,
            }

    @precondition(lambda self: self.model.probe is not None)
    @rule(own_us=strategies.sampled_from([1.0, BUDGET_US, BUDGET_US + 1, BUDGET_US + 1, HARD_US + 1]))
    def a_step_of_the_probe(self, own_us: float) -> None:
        held = self.is_held_to_limits()
        self.world.step(own_us, request_id="probe", pool="quarantine")
        probe = self.model.probe
        if self.model.state is State.closed:
            return  # released meanwhile, and running in quarantine: nobody looks
        probe["steps"] += 1
        probe["over"] += own_us > BUDGET_US
        if held and (own_us > HARD_US or probe["over"] >= 3):
            self.model.probe = None
            if self.model.state is State.half_open and probe["number"] == (self.model.closed_since, self.model.number):
                self.model.open(self.world.at_s)

    def is_held_to_limits(self) -> bool:
        """Whether the probe is of a signature that tripped: one that was only added is held to no limits here."""
        return self.world.trust._probes.find("probe").limits.budget_us is not None

    @precondition(lambda self: self.model.probe is not None and "ended" not in self.model.probe)
    @rule(answered=strategies.booleans(), watched=strategies.booleans())
    def the_probe_ends(self, answered: bool, watched: bool) -> None:
        self.world.trust.finished("probe", "s1-a", answered=answered, watched=watched)
        self.model.probe |= {"ended": self.world.at_s, "answered": answered, "watched": watched}

    @invariant()
    def the_states_are_the_same(self) -> None:
        assert self.world.state() is self.model.state

    @invariant()
    def who_is_not_closed_is_barred_and_nobody_else(self) -> None:
        offered_s = self.world.at_s
        barred = "s1-a" in self.world.trust._barred
        assert barred is (self.model.state is not State.closed)
        assert self.world.at_s == offered_s

    @invariant()
    def trips_and_waits_are_the_same(self) -> None:
        record = self.world.trust.record(Kind.signature, "s1-a")
        if record is not None and self.model.state is State.open:
            assert record.until == self.world.wall_offset_s + self.model.until


Breaker.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestBreaker = Breaker.TestCase
