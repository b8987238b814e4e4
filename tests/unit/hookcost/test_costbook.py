"""What was observed of a signature, and how it corrects the prediction."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings, strategies

from gateway.hookcost.classification import Classification
from gateway.hookcost.cost import FREE, HookCost
from gateway.hookcost.costbook import CostBook, CostEntry
from gateway.hookcost.features import Features
from gateway.hookcost.observation import CompileObservation, Origin, RollupObservation, StepObservation
from gateway.hookcost.sketch import bucket_of, quantile, upper_bound

HALF_LIFE_S = 3600.0


@dataclass
class Ledger:
    """A cost book with a clock that is turned by hand."""

    capacity: int = 100_000
    at_s: float = 0.0
    requests: int = 0
    book: CostBook = field(init=False)

    def __post_init__(self) -> None:
        self.book = CostBook(lambda: self.at_s, self.capacity, HALF_LIFE_S)

    def origin(self, signature: str, request_id: str | None) -> Origin:
        self.requests += 1
        return Origin(request_id or f"r{self.requests}", signature, "acme", "interactive", "gpu-1")

    def step(self, us: float, signature: str = "s1-a", request_id: str | None = None) -> None:
        kinds = {"grammar_fill": us * 0.75, "stop": us * 0.25}
        self.book.observe_step(StepObservation(self.origin(signature, request_id), self.at_s, us, kinds))

    def rollup(self, steps: int, sum_us: float, max_us: float, request_id: str, signature: str = "s1-a") -> None:
        kinds = {"grammar_fill": sum_us * 0.75, "stop": sum_us * 0.25}
        origin = self.origin(signature, request_id)
        self.book.observe_rollup(RollupObservation(origin, self.at_s, steps, sum_us, max_us, kinds))

    def compile(self, ms: float, signature: str = "s1-a") -> None:
        self.book.observe_compile(CompileObservation(self.origin(signature, None), self.at_s, ms))

    def entry(self, signature: str = "s1-a") -> CostEntry:
        entry = self.book.entry(signature)
        assert entry is not None
        return entry

    def blended(self, predicted: HookCost, signature: str = "s1-a") -> HookCost:
        return self.book.blended(Classification(Features(), predicted, signature))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


PREDICTED = HookCost(20.0, 100.0, {"grammar": 80.0, "stop": 20.0}, heavy="deep", refused="no", front_end_us=7.0)


def test_what_was_never_observed_costs_what_was_predicted(ledger: Ledger) -> None:
    assert ledger.blended(PREDICTED) is PREDICTED
    assert ledger.blended(FREE) is FREE


def test_an_entry_says_what_was_seen(ledger: Ledger) -> None:
    for us in [*[100.0] * 90, *[1000.0] * 10]:
        ledger.step(us)
    ledger.at_s = 7.0
    ledger.compile(12.0)
    ledger.compile(18.0)

    entry = ledger.entry()
    assert (entry.steps, entry.mean_us, entry.max_us) == (100.0, 190.0, 1000.0)
    assert entry.p95_us == pytest.approx(1000.0, rel=0.1)
    assert (entry.compiles, entry.compile_mean_ms, entry.compile_max_ms, entry.last_seen_s) == (2.0, 15.0, 18.0, 7.0)
    document = entry.document()
    assert document["by_kind"] == {"grammar_fill": 142.5, "stop": 47.5}
    assert 0.0 < document["confidence"] < 1.0


def test_observation_outweighs_the_prediction_by_and_by(ledger: Ledger) -> None:
    seen = []
    for _ in range(5):
        for _ in range(100):
            ledger.step(1000.0)
        seen.append(ledger.blended(PREDICTED).step_us)

    assert seen == sorted(seen)
    assert 600 < seen[0] < 800
    assert seen[-1] > 900


def test_a_blend_keeps_what_is_not_observed_and_splits_as_the_prediction_did(ledger: Ledger) -> None:
    for _ in range(1000):
        ledger.step(900.0)
    ledger.compile(500.0)

    blend = ledger.blended(PREDICTED)
    assert (blend.heavy, blend.refused, blend.front_end_us) == ("deep", "no", 7.0)
    assert blend.by_hook["grammar"] == pytest.approx(0.8 * blend.step_us)
    assert sum(blend.by_hook.values()) == pytest.approx(blend.step_us)
    assert 20.0 < blend.compile_ms < 500.0


def test_what_nobody_predicted_is_split_as_the_engine_did(ledger: Ledger) -> None:
    for _ in range(1000):
        ledger.step(900.0)

    blend = ledger.blended(HookCost(5.0))
    assert blend.by_hook["grammar"] == pytest.approx(0.75 * blend.step_us)
    assert blend.by_hook["stop"] == pytest.approx(0.25 * blend.step_us)


def test_a_blend_is_worked_out_once_for_each_observation(ledger: Ledger) -> None:
    ledger.step(900.0)
    first = ledger.blended(PREDICTED)
    assert ledger.blended(PREDICTED) is first

    ledger.step(900.0)
    assert ledger.blended(PREDICTED).step_us > first.step_us


def test_another_prediction_of_the_same_signature_has_its_own_blend(ledger: Ledger) -> None:
    ledger.step(900.0)
    dear = HookCost(step_us=5000.0)

    assert ledger.blended(dear).step_us > 4000 > ledger.blended(PREDICTED).step_us


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(lambda w: w.rollup(10, 2900.0, 1000.0, "r"), id="rolled up only"),
        pytest.param(
            lambda w: [
                w.step(1000.0, request_id="r"),
                w.step(900.0, request_id="r"),
                w.rollup(10, 2900.0, 1000.0, "r"),
            ],
            id="the dear ones one by one, then all rolled up",
        ),
        pytest.param(
            lambda w: [
                *[w.step(us, request_id="r") for us in (1000.0, 900.0, *[125.0] * 8)],
                w.rollup(10, 2900.0, 1000.0, "r"),
            ],
            id="all of them both ways",
        ),
        pytest.param(
            lambda w: [
                w.step(1000.0, request_id="r"),
                w.rollup(5, 1400.0, 1000.0, "r"),
                w.step(900.0, request_id="r"),
                w.rollup(5, 1500.0, 900.0, "r"),
            ],
            id="in two parts",
        ),
    ],
)
def test_a_step_counts_once_however_it_is_told(ledger: Ledger, story) -> None:
    story(ledger)

    entry = ledger.entry()
    assert (entry.steps, entry.sum_us) == (10.0, pytest.approx(2900.0))
    assert sum(entry.buckets.values()) == pytest.approx(10.0)
    assert sum(entry.by_kind.values()) == pytest.approx(2900.0)
    assert entry.max_us == 1000.0


def test_requests_are_told_apart_when_they_are_rolled_up(ledger: Ledger) -> None:
    ledger.step(500.0, request_id="one")
    ledger.rollup(4, 400.0, 100.0, "other")

    assert ledger.entry().steps == 5.0


def test_old_observations_weigh_less(ledger: Ledger) -> None:
    for _ in range(400):
        ledger.step(1000.0)
    ledger.at_s += 2 * HALF_LIFE_S
    for _ in range(100):
        ledger.step(100.0)

    entry = ledger.entry()
    assert entry.steps == pytest.approx(200.0)
    assert entry.mean_us == pytest.approx(550.0)


def test_a_maximum_that_weighs_nothing_any_more_is_forgotten(ledger: Ledger) -> None:
    ledger.step(90_000.0)
    for _ in range(20):
        ledger.at_s += HALF_LIFE_S
        ledger.step(100.0)

    assert ledger.entry().max_us < 200.0


def test_what_was_not_seen_for_long_is_forgotten(ledger: Ledger) -> None:
    for _ in range(1000):
        ledger.step(500.0, "s1-often")
    ledger.step(500.0, "s1-once")
    ledger.compile(500.0, "s1-compiled")
    assert ledger.book.age() == 0

    ledger.at_s += 1.1 * HALF_LIFE_S
    assert ledger.book.age() == 0  # the one seen first still weighs, and is in front
    ledger.at_s += 10 * HALF_LIFE_S
    assert ledger.book.age() == 3
    assert ledger.book.entry("s1-often") is None
    assert ledger.blended(PREDICTED, "s1-often") is PREDICTED


def test_memory_is_bounded_and_what_is_observed_stays() -> None:
    ledger = Ledger(capacity=100)
    for number in range(5000):
        ledger.step(5.0, "s1-used")
        ledger.step(5.0, f"s1-{number}")

    assert len(ledger.book) == 100
    assert ledger.entry("s1-used").steps == 5000.0
    assert ledger.book.entry("s1-0") is None
    assert len(ledger.book._told) <= 10_000


def test_the_dearest_come_first(ledger: Ledger) -> None:
    for number in range(20):
        ledger.step(10.0 * number, f"s1-{number}")

    assert [entry.signature for entry in ledger.book.top(3)] == ["s1-19", "s1-18", "s1-17"]


def test_a_book_exports_its_own_observations_once(ledger: Ledger) -> None:
    ledger.step(500.0)
    ledger.book.merge("s1-a", {"n": 10.0, "us": 100.0})

    exported = ledger.book.export()
    assert exported == {"s1-a": {"n": 1.0, "us": 500.0, "b36": 1.0, "k.grammar_fill": 375.0, "k.stop": 125.0}}
    assert ledger.book.export() == {}


US = strategies.floats(0.0, 1e8)
STEPS = strategies.lists(US, min_size=1, max_size=40)


@given(STEPS)
def test_mean_and_quantile_lie_between_the_least_and_the_most(steps: list[float]) -> None:
    ledger = Ledger()
    for us in steps:
        ledger.step(us)

    entry = ledger.entry()
    assert min(steps) * (1 - 1e-9) <= entry.mean_us <= entry.max_us == max(steps)
    exact = sorted(steps)[math.ceil(0.95 * len(steps)) - 1]
    assert entry.p95_us <= max(steps)
    assert entry.p95_us == pytest.approx(exact, rel=0.1, abs=1.0)


@given(strategies.lists(strategies.tuples(US, strategies.floats(0.0, 3 * HALF_LIFE_S)), min_size=1, max_size=30))
def test_the_mean_never_leaves_what_was_seen_while_it_decays(steps: list[tuple[float, float]]) -> None:
    ledger = Ledger()
    for us, pause_s in steps:
        ledger.at_s += pause_s
        ledger.step(us)
        entry = ledger.entry()
        assert 0.0 <= entry.mean_us <= entry.max_us <= max([us for us, _ in steps])


@given(STEPS, strategies.floats(0.0, 1e6))
def test_a_blend_lies_between_prediction_and_observation(steps: list[float], predicted_us: float) -> None:
    ledger = Ledger()
    for us in steps:
        ledger.step(us)

    mean = ledger.entry().mean_us
    blend = ledger.blended(HookCost(step_us=predicted_us, by_hook={"grammar": predicted_us})).step_us
    slack = 1e-6 * max(mean, predicted_us)
    assert min(mean, predicted_us) - slack <= blend <= max(mean, predicted_us) + slack


@given(US, strategies.floats(0.0, 1e6), strategies.integers(1, 60))
def test_the_more_was_seen_the_nearer_the_blend_is_to_it(observed_us: float, predicted_us: float, more: int) -> None:
    ledger, predicted = Ledger(), HookCost(step_us=predicted_us)
    ledger.step(observed_us)
    before = abs(ledger.blended(predicted).step_us - observed_us)
    for _ in range(more):
        ledger.step(observed_us)

    assert abs(ledger.blended(predicted).step_us - observed_us) <= before + 1e-6 * max(observed_us, predicted_us)


@settings(max_examples=50)
@given(
    strategies.lists(
        strategies.tuples(strategies.sampled_from(["s1-a", "s1-b"]), STEPS, strategies.booleans()), max_size=8
    )
)
def test_what_a_book_exports_in_parts_adds_up_in_another(parts: list[tuple[str, list[float], bool]]) -> None:
    one, other, summed = Ledger(), Ledger(), Ledger()
    totals: dict[str, dict[str, float]] = {}
    for signature, steps, compiled in parts:
        for us in steps:
            one.step(us, signature)
        if compiled:
            one.compile(steps[0] / 1e3, signature)
        for name, amounts in one.book.export().items():
            other.book.merge(name, amounts)
            for key, amount in amounts.items():
                totals.setdefault(name, {})[key] = totals.get(name, {}).get(key, 0.0) + amount
    for name, amounts in totals.items():
        summed.book.merge(name, amounts)

    for name in totals:
        mine = one.entry(name)
        for theirs in (other.entry(name), summed.entry(name)):
            assert theirs.steps == pytest.approx(mine.steps)
            assert theirs.mean_us == pytest.approx(mine.mean_us)
            assert theirs.buckets == pytest.approx(mine.buckets)
            assert theirs.compile_mean_ms == pytest.approx(mine.compile_mean_ms)
            assert mine.max_us <= theirs.max_us * (1 + 1e-9)
            assert theirs.max_us <= max(1.0, mine.max_us * 1.2)
            assert mine.compile_max_ms <= theirs.compile_max_ms * (1 + 1e-9)
            assert theirs.compile_max_ms <= max(0.001, mine.compile_max_ms * 1.2)


@given(strategies.floats(0.0, 1e11))
def test_a_bucket_holds_its_value(value: float) -> None:
    bucket = bucket_of(value)
    assert value <= upper_bound(bucket) * (1 + 1e-9)
    assert bucket == 0 or value >= upper_bound(bucket - 1) * (1 - 1e-9)


def test_there_is_no_quantile_of_nothing() -> None:
    assert quantile([], 0.95) == 0.0
    assert upper_bound(bucket_of(math.inf)) < math.inf
