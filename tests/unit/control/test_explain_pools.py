import pytest

from gateway.control.assembly import build_router
from gateway.control.classifier import build_classifier
from gateway.control.config import parse_config
from gateway.control.explain import Asked, explain
from gateway.control.problem import ConfigError

SCHEMA = (
    b'{"messages": [], "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": '
    b'{"type": "object", "properties": {"a": {"type": "string", "pattern": "^.{1,255}$"}}}}}}'
)


def explained(text: str) -> dict[str, object]:
    config = parse_config(text)
    router = build_router(config, available=True)
    asked = Asked("/v1/chat/completions", SCHEMA)
    return dict(explain(router, build_classifier(config), config.hookcost, asked))


def test_a_pool_that_can_not_take_it_is_said_to_be_why_another_stands_in() -> None:
    found = explained(
        """
default_pool: draft
pools:
  draft: {replicas: [http://h:1], capabilities: {grammar: false}, when_unavailable: {spill: plain}}
  plain: {replicas: [http://h:2]}
"""
    )
    assert found["pool"] == "plain"
    assert "pool 'draft' can't take it: the engines for this request can't constrain their output" in str(found["why"])


GROUP = """
default_pool: xg
pools:
  xg: {replicas: [http://h:1]}
  llg: {replicas: [http://h:2], grammar_backend: llguidance}
rules:
  - {name: structured, when: {grammar: any}, cheapest_backend: [xg, llg]}
"""


def test_the_cheapest_backend_of_a_group_takes_it() -> None:
    found = explained(GROUP)
    assert (found["pool"], found["route"], found["spilled_from"]) == ("llg", "structured", None)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("cheapest_backend: [xg, other]", "rules[0].cheapest_backend[1]: expected one of the pools xg, llg"),
        ("cheapest_backend: [xg]", "rules[0].cheapest_backend: expected at least 2 entry"),
        ("cheapest_backend: [xg, llg], pool: xg", "expected a rule with `pool`, with `cheapest_backend`, or with"),
        ("cheapest_backend: [xg, llg], fallbacks: [llg]", "rules[0].fallbacks[0]: expected each pool once"),
    ],
)
def test_a_mistake_in_a_group_is_named(rule: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(GROUP.replace("cheapest_backend: [xg, llg]", rule))
    assert said in str(refused.value.problems[0])
