from collections import Counter

from loadtest.bench_routing.cachedengine import CACHED_BLOCKS, CachedEngine
from loadtest.bench_routing.conversations import prompt_of, trace
from loadtest.bench_routing.grammars import GrammarRun
from loadtest.bench_routing.schemas import schemas, zipf


def test_schemas_are_all_different_and_the_same_in_every_run() -> None:
    made = schemas(200)
    assert len({str(each) for each in made}) == 200
    assert made == schemas(200)


def test_the_first_schema_is_asked_for_most_and_the_nth_n_times_more_seldom() -> None:
    draws = Counter(zipf(200, 50_000, 1.0))
    assert draws.most_common(1)[0][0] == 0
    assert 1.7 < draws[0] / draws[1] < 2.3
    assert 8 < draws[0] / draws[9] < 12


def test_a_conversation_begins_with_all_that_was_said_before() -> None:
    sent = [prompt_of(messages) for messages in trace(400)]
    longer = sum(any(prompt.startswith(earlier) for earlier in sent[:at]) for at, prompt in enumerate(sent))
    assert longer > 200
    assert sent == [prompt_of(messages) for messages in trace(400)]


def test_an_engine_knows_the_beginning_that_it_has_seen_and_no_more() -> None:
    engine = CachedEngine()
    engine.take("a" * 640)
    assert (engine.known, engine.asked) == (0, 640)
    engine.take("a" * 640 + "b" * 640)
    assert (engine.known, engine.asked) == (640, 1920)
    engine.take("b" + "a" * 640)
    assert engine.known == 640


def test_an_engine_forgets_what_was_used_least_recently() -> None:
    engine = CachedEngine()
    engine.take("a" * 640)
    for at in range(CACHED_BLOCKS // 100):
        engine.take(f"{at:64}" + "x" * 64 * 99)
    engine.take("a" * 640)
    assert engine.known < 640


def test_quantiles_are_those_of_the_sorted_times() -> None:
    run = GrammarRun("b", 100, 0, 1, 1, tuple(float(each) for each in range(100)))
    assert (run.quantile(0.5), run.quantile(0.99), run.quantile(1.0)) == (50.0, 99.0, 99.0)
    assert GrammarRun("b", 1, 1, 1, 1, ()).quantile(0.5) == 0.0
