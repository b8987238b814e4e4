import pytest

from gateway.control.assembly import build_router, pool_settings
from gateway.control.classifier import build_classifier
from gateway.control.config import PoolConfig, parse_config
from gateway.control.problem import ConfigError
from gateway.routing.balance import words
from gateway.routing.balance.affinity import GrammarAffinity, SessionAffinity
from gateway.routing.balance.least import Least, cache_usage, engine_load, step_cost
from gateway.routing.balance.pipeline import PipelinePlan
from gateway.routing.balance.prefix_affinity import PrefixAffinity
from gateway.routing.balance.zone import ZoneAware
from gateway.routing.capabilities import Capabilities


def text_with(pool: str = "", top: str = "") -> str:
    return f"{top}\ndefault_pool: all\npools:\n  all:\n    replicas: [http://h:1, http://h:2]\n    {pool}\n"


def pool_with(pool: str = "", top: str = "") -> PoolConfig:
    return parse_config(text_with(pool, top)).pools["all"]


@pytest.mark.parametrize(
    ("balance", "plan"),
    [
        ("", None),
        ("balance: least_requests", None),
        ("balance: {}", None),
        ("balance: round_robin", words.ROUND_ROBIN),
        ("balance: power_of_two", words.POWER_OF_TWO),
        ("balance: least_step_cost", words.LEAST_STEP_COST),
        ("balance: engine_load", words.ENGINE_LOAD),
        ("balance: weighted", words.WEIGHTED),
        ("balance: grammar_affinity", words.affine(GrammarAffinity())),
        ("balance: {grammar_affinity: {bound: 2, floor: 0}}", words.affine(GrammarAffinity(2.0, 0))),
        ("balance: session_affinity", words.affine(SessionAffinity())),
        ("balance: {session_affinity: user}", words.affine(SessionAffinity())),
        ("balance: {session_affinity: {header: X-Session}}", words.affine(SessionAffinity("X-Session"))),
        ("balance: prefix_affinity", words.affine(PrefixAffinity())),
        ("balance: {prefix_affinity: {threshold: 0.5}}", words.affine(PrefixAffinity(threshold=0.5))),
        ("balance: zone_aware", words.near(ZoneAware("here"))),
        ("balance: {zone_aware: {bound: 3}}", words.near(ZoneAware("here", 3.0))),
        ("balance: {score: [{least_step_cost: 1.0}]}", PipelinePlan(scores=((Least(step_cost), 1.0),))),
        (
            "balance: {filter: [zone_aware], score: [{engine_load: 1}, {grammar_affinity: 2, cache_usage: 0.5}], "
            "pick: p2c}",
            PipelinePlan(
                (ZoneAware("here"),),
                ((Least(engine_load), 1.0), (Least(cache_usage), 0.5), (GrammarAffinity(), 2.0)),
                "p2c",
            ),
        ),
        (
            "balance: {score: [{prefix_affinity: {weight: 3, blocks: 10}}]}",
            PipelinePlan(scores=((PrefixAffinity(blocks=10), 3.0),)),
        ),
        ("balance: {pick: weighted}", PipelinePlan(pick="weighted")),
    ],
)
def test_every_way_to_balance_has_its_plan(balance: str, plan: PipelinePlan | None) -> None:
    settings = pool_settings(pool_with(balance, "zone: here"))
    assert settings.balance == plan
    if plan is not None:
        assert settings.balance is not None
        settings.balance.build()


def test_weights_that_differ_are_heeded_by_the_usual_balancing_too() -> None:
    text = text_with().replace("http://h:2", "{url: http://h:2, weight: 3}")
    config = parse_config(text)
    pool = build_router(config, available=True).pools["all"]
    assert pool_settings(config.pools["all"]).balance == words.LEAST_REQUESTS
    assert [replica.weight for replica in pool.replicas] == [1.0, 3.0]
    assert pool.balancer is not None


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("balance: fastest", "balance: expected one of engine_load, grammar_affinity, least_requests"),
        ("balance: {round_robin: {}, weighted: {}}", "balance: expected either one word, or filter, score and pick"),
        ("balance: {round_robin: {}, pick: best}", "balance: expected either one word, or filter, score and pick"),
        ("balance: zone_aware", "balance: expected a gateway that knows its own zone, found no zone"),
        ("balance: {pick: worst}", "balance.pick: expected 'best', 'p2c' or 'weighted', found 'worst'"),
        (
            "balance: {grammar_affinity: {bound: 0.5}}",
            "balance.grammar_affinity.bound: expected a number of at least 1",
        ),
        ("balance: {score: [{speed: 1}]}", "balance.score[0].speed: expected one of least_requests"),
        ("balance: {filter: [near]}", "balance.filter[0]"),
        ("grammar_backend_version: 0.2.7", "grammar_backend_version: expected a version beside a grammar_backend"),
        ("balance: engine_load\n    engine: other", "balance: expected engines that say their load"),
        ("capabilities: {grammer: false}", "did you mean grammar?"),
    ],
)
def test_a_mistake_is_named_where_it_stands(pool: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(text_with(pool), "f.yaml")
    problem = str(refused.value.problems[0])
    assert problem.startswith("f.yaml:6:")
    assert said in problem


def test_a_pool_says_what_its_engines_can_take() -> None:
    pool = pool_with("capabilities: {grammar: false, max_top_logprobs: 5, models: [m], lora: [a]}")
    assert pool_settings(pool).capabilities == Capabilities(
        grammar=False, max_top_logprobs=5, models=frozenset({"m"}), lora=frozenset({"a"})
    )
    assert pool_settings(pool_with()).capabilities is None


def test_grammars_are_priced_for_every_backend_that_a_pool_names() -> None:
    body = b'{"messages": [], "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}}'
    config = parse_config(text_with("grammar_backend: llguidance", "hookcost: {grammar_backend_version: 0.2.7}"))

    found = build_classifier(config).classify("/v1/chat/completions", body)

    assert list(found.by_backend) == ["xgrammar 0.2.7", "llguidance"]
    assert found.cost == found.by_backend["xgrammar 0.2.7"]
    assert pool_settings(config.pools["all"]).backend == "llguidance"


@pytest.mark.parametrize(
    ("balance", "label"),
    [
        ("", "least_requests"),
        ("balance: least_requests", "least_requests"),
        ("balance: {grammar_affinity: {bound: 2}}", "grammar_affinity"),
        ("balance: {pick: p2c}", "pipeline"),
    ],
)
def test_a_balance_has_a_name_for_people(balance: str, label: str) -> None:
    assert pool_with(balance).balance.label == label
