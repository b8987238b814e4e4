"""The JSON Schema of the configuration: right about what is right, and about what is plainly wrong."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gateway.control.config import Config, HealthConfig, PoolConfig, TimeoutsConfig, parse_config
from gateway.control.schema import config_schema, field_texts
from gateway.control.shipped import shipped_file

EXAMPLES = [path for path in shipped_file("gateway.yaml").parent.rglob("*.yaml") if "default_pool:" in path.read_text()]


class Loader(yaml.SafeLoader):
    """As editors read it: YAML 1.2, in which `on` is a word, and variables are text."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if first in "tTfF" or not tag.endswith(":bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def errors_of(validator: Any, text: str) -> list[str]:
    return [error.message for error in validator.iter_errors(yaml.load(text, Loader=Loader))]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_follow_it_and_name_it_for_editors(validator: Any, path: Path) -> None:
    text = path.read_text()

    assert errors_of(validator, text) == []
    assert "# yaml-language-server: $schema=" in text


def test_there_are_examples() -> None:
    assert {"gateway.yaml", "embedded.yaml"} <= {path.name for path in EXAMPLES}


SHORT_FORMS = """
include: [replicas/*.yaml]
listen: 127.0.0.1:8080
admin: {listen: 127.0.0.1:8081}
default_pool: a
timeouts: {drain_s: "${DRAIN:-30}"}
state: memory
pools:
  a:
    replicas: [http://h:1, {url: http://h:2, name: two}]
    when_unavailable: reject
    balance: power_of_two
  b: {discover: {dns: {name: h, port: 1}}, when_unavailable: {spill: a}}
rules:
  - {name: r, when: {stream: true, n: ">1"}, pool: b}
"""


def test_short_forms_follow_it(validator: Any) -> None:
    parse_config(SHORT_FORMS.replace("include: [replicas/*.yaml]", ""))

    assert errors_of(validator, SHORT_FORMS) == []


@pytest.mark.parametrize(
    "mistake",
    [
        "pools: {}\n",
        "default_pool: a\n",
        "default_pool: a\npools: {a: {replicas: [http://h:1]}}\nlimit: {}\n",
        "default_pool: a\npools: {a: {replicas: [http://h:1], step_budget_us: -1}}\n",
        "default_pool: a\npools: {a: {replicas: [{name: x}]}}\n",
        "default_pool: a\npools: {a: {replicas: [http://h:1], engine: sglan}}\n",
        "default_pool: a\npools: {a: {replicas: [http://h:1]}}\ntimeouts: {drain_s: soon}\n",
        "default_pool: a\npools: {a: {replicas: [http://h:1]}}\nlisten: 8080\n",
    ],
)
def test_mistakes_do_not(validator: Any, mistake: str) -> None:
    assert errors_of(validator, mistake)


def test_keys_are_described_by_the_docstrings_of_their_parts() -> None:
    schema = config_schema()

    timeouts = schema["$defs"]["TimeoutsConfig"]["properties"]
    assert timeouts["connect_s"]["description"] == "a connection to a replica."
    assert timeouts["connect_s"]["default"] == 2
    assert schema["properties"]["pools"]
    assert schema["$defs"]["AdminConfig"]["properties"]["listen"]["default"] == "127.0.0.1:8081"
    assert set(field_texts(TimeoutsConfig)) == set(TimeoutsConfig.model_fields)
    assert "hook time that one step may take" in field_texts(PoolConfig)["step_budget_us"]
    assert field_texts(HealthConfig) == {}
    assert "include" in field_texts(Config)
