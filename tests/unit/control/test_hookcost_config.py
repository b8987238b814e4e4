from pathlib import Path

import pytest

from gateway.control.classifier import build_classifier
from gateway.control.config import load_config, parse_config
from gateway.control.problem import ConfigError
from gateway.control.shipped import shipped_file

POOLS = """
default_pool: a
pools: {a: {replicas: [http://127.0.0.1:1]}}
"""
BOMB = (
    b'{"messages":[],"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":'
    b'{"type":"string","pattern":"^.{1,255}$"}}}}'
)


@pytest.mark.parametrize(
    ("backend", "at_least_us", "at_most_us"), [("xgrammar", 20_000, 80_000), ("llguidance", 0, 2_000)]
)
def test_the_backend_decides_the_price(backend: str, at_least_us: float, at_most_us: float) -> None:
    classifier = build_classifier(parse_config(f"hookcost: {{grammar_backend: {backend}}}\n{POOLS}"))

    cost = classifier.classify("/v1/chat/completions", BOMB).cost

    assert at_least_us <= cost.step_us <= at_most_us


def test_the_policy_decides_what_is_refused() -> None:
    body = b'{"messages":[],"logprobs":true,"top_logprobs":30}'
    strict = build_classifier(parse_config(f"hookcost: {{refuse: {{max_top_logprobs: 20}}}}\n{POOLS}"))

    assert strict.classify("/v1/chat/completions", body).refusal is not None
    assert build_classifier(parse_config(POOLS)).classify("/v1/chat/completions", body).refusal is None


def test_a_price_list_is_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_bytes(shipped_file("cost_model.yaml").read_bytes())
    file = tmp_path / "gateway.yaml"
    file.write_text(f"hookcost: {{cost_model: prices.yaml}}\n{POOLS}")

    assert build_classifier(load_config(file)).model.vocabulary.size == 151936


@pytest.mark.parametrize(
    ("part", "line", "said"),
    [
        ("{refuse: {max_top_logprob: 20}}", 1, "max_top_logprob"),
        ("{refuse: {lookaround: maybe}}", 1, "reject"),
        ("{cost_model: nowhere.yaml}", 1, "nowhere.yaml"),
        ("{grammar_backend: magic}", 1, "xgrammar"),
        ("{grammar_backend_version: newest}", 1, "newest"),
        ("{grammar_backend_version: 0.2}", 1, "0.2"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_place(part: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(f"hookcost: {part}\n{POOLS}")

    assert refused.value.problems[0].line == line
    assert refused.value.problems[0].key.startswith("hookcost")
    assert said in str(refused.value)
