import pytest

from gateway.control.config import Config, parse_config
from gateway.control.problem import ConfigError
from gateway.control.warmupconfig import WarmUpConfig


def config_with(pool: str) -> Config:
    return parse_config(f"default_pool: p\npools:\n  p:\n    replicas: [http://h:1]\n    {pool}\n")


def test_nothing_is_warmed_up_unless_a_pool_wants_it() -> None:
    assert config_with("").pools["p"].warm_up is None
    assert config_with("warm_up:").pools["p"].warm_up is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{}", WarmUpConfig(grammars=50, keep_bytes=4 << 20, max_grammar_bytes=64 << 10, concurrency=2, timeout_s=30)),
        ("{grammars: 5, timeout_s: 0.5}", WarmUpConfig(grammars=5, timeout_s=0.5)),
    ],
)
def test_a_pool_says_how_it_is_warmed_up(text: str, wanted: WarmUpConfig) -> None:
    config = config_with(f"warm_up: {text}")
    assert config.pools["p"].warm_up == wanted
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yes", "pools.p.warm_up"),
        ("{grammars: 0}", "pools.p.warm_up.grammars"),
        ("{grammars: 1001}", "pools.p.warm_up.grammars"),
        ("{keep_bytes: 0}", "pools.p.warm_up.keep_bytes"),
        ("{concurrency: 0}", "pools.p.warm_up.concurrency"),
        ("{timeout_s: 0}", "pools.p.warm_up.timeout_s"),
        ("{timeout_s: .inf}", "pools.p.warm_up.timeout_s"),
        ("{schemas: 5}", "pools.p.warm_up.schemas"),
    ],
)
def test_what_can_not_be_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_with(f"warm_up: {text}")
    (problem,) = caught.value.problems
    assert said in str(problem)
    assert problem.line == 5


def test_a_pool_that_takes_no_grammars_has_nothing_to_warm_up() -> None:
    (warning,) = config_with("warm_up: {}\n    capabilities: {grammar: false}").warnings
    assert "pools.p.warm_up: expected a pool that takes grammars, found capabilities.grammar: false" in str(warning)
