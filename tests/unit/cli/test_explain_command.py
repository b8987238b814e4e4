import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway import __version__

Steplane = Callable[..., Any]

PLAIN = b'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}'
STRUCTURED = b'{"model": "m", "messages": [], "response_format": {"type": "json_object"}, "max_tokens": 77}'


def test_json_is_one_object_with_the_decision_and_what_it_rests_on(steplane: Steplane, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_bytes(STRUCTURED)

    outcome = steplane("explain", body, "--json")

    explanation = json.loads(outcome.stdout)
    assert outcome.code == 0
    assert (explanation["pool"], explanation["route"]) == ("grammar", "structured")
    assert explanation["signature"].startswith("s1-")
    assert explanation["cost"].keys() == {*("compile_ms", "step_us", "by_hook", "heavy", "refused", "front_end_us")}
    assert explanation["features"]["max_tokens"] == 77
    assert explanation.keys() >= {"grammar_key", "refusal", "rejection", "why", "rules"}


def test_without_json_it_reads_as_text_and_leaves_out_what_says_nothing(steplane: Steplane) -> None:
    outcome = steplane("explain", "-", stdin=STRUCTURED)

    assert outcome.code == 0
    assert "pool grammar, rule structured" in outcome.stdout
    assert "rule 'structured' takes it: grammar is json_object (the rule wants grammar: any)" in outcome.stdout
    assert "the pool's budget is 2,000 µs" in outcome.stdout
    assert "max_tokens" in outcome.stdout
    assert "not logit-processor: custom_logit_processor is false, not true" in outcome.stdout
    assert "not prompt-logprobs: prompt_logprobs is absent, not true" in outcome.stdout
    assert "return_hidden_states" not in outcome.stdout


def test_the_parts_of_the_cost_and_the_dearest_places_can_be_read(steplane: Steplane, tmp_path: Path) -> None:
    config = tmp_path / "f.yaml"
    config.write_text(
        "default_pool: a\npools: {a: {replicas: [http://h:1]}}\nhookcost: {grammar_backend_version: 0.2.9}\n"
    )
    schema = {"properties": {"[b]x": {"type": "string", "pattern": "^.{1,255}$"}, "y": {"format": "uri"}}}
    schema["properties"]["y"]["type"] = "string"
    body = json.dumps({"messages": [], "guided_json": schema, "logprobs": True}).encode()

    text = steplane("explain", "-", "-c", config, stdin=body).stdout

    assert "what adds up to it on xgrammar 0.2.9" in text
    assert "grammar: counted_class" in text
    assert "logprobs: top_logprobs" in text
    assert "guided_json /properties/[b]x: " in text
    assert "cheaper: use a count of at most 128" in text
    plain = steplane("explain", "-", stdin=PLAIN).stdout
    assert "what adds up" not in plain
    assert "cheaper" not in plain


def test_the_path_decides_how_the_body_is_read(steplane: Steplane) -> None:
    body = b'{"prompt": "x", "prompt_logprobs": 1}'

    assert json.loads(steplane("explain", "-", "--json", "--path", "/v1/completions", stdin=body).stdout)["route"] == (
        "prompt-logprobs"
    )
    assert json.loads(steplane("explain", "-", "--json", "--path", "/v1/embeddings", stdin=body).stdout)["route"] == (
        "default"
    )


def test_a_configuration_of_ones_own_replaces_the_embedded_one(steplane: Steplane, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        "default_pool: a\npools:\n  a: {replicas: [http://h:1]}\nrules: [{name: hi, when: {model: m}, pool: a}]\n"
    )

    explanation = json.loads(steplane("explain", "-", "--json", "-c", path, stdin=PLAIN).stdout)

    assert (explanation["pool"], explanation["route"]) == ("a", "hi")


@pytest.mark.parametrize("arguments", [["--json"], []])
def test_a_body_that_is_no_json_is_explained_as_refused_with_exit_code_3(
    steplane: Steplane, arguments: list[str]
) -> None:
    outcome = steplane("explain", "-", *arguments, stdin=b'{"messages": [\n  1,\n}')

    assert outcome.code == 3
    assert "invalid_json" in outcome.stdout
    assert "line 3, column 1" in outcome.stdout
    if arguments:
        explanation = json.loads(outcome.stdout)
        assert (explanation["pool"], explanation["refusal"]["status"]) == (None, 400)


def test_a_field_with_a_wrong_type_is_named(steplane: Steplane) -> None:
    outcome = steplane("explain", "-", "--json", stdin=b'{"messages": [], "top_logprobs": {"a": 1}}')

    assert outcome.code == 3
    assert json.loads(outcome.stdout)["refusal"]["param"] == "top_logprobs"


@pytest.mark.parametrize("name", ["none.json", "."])
def test_a_file_that_can_not_be_read_is_one_line_on_stderr_with_exit_code_1(
    steplane: Steplane, tmp_path: Path, name: str
) -> None:
    outcome = steplane("explain", tmp_path / name)

    assert outcome.code == 1
    assert outcome.stdout == ""
    assert outcome.stderr.startswith(f"steplane: can't read {tmp_path / name}: ")
    assert outcome.stderr.count("\n") == 1


def test_a_stdin_that_is_closed_is_said_so(steplane: Steplane) -> None:
    outcome = steplane("explain", "-", stdin=None)

    assert outcome.code == 1
    assert outcome.stderr.startswith("steplane: can't read stdin: it is closed")


def test_a_bad_configuration_fails_before_anything_is_decided(steplane: Steplane, tmp_path: Path) -> None:
    outcome = steplane("explain", "-", "-c", tmp_path / "none.yaml", stdin=PLAIN)

    assert outcome.code == 1
    assert outcome.stdout == ""


def test_text_from_a_request_is_not_taken_for_markup(steplane: Steplane) -> None:
    outcome = steplane("explain", "-", stdin=b'{"model": "[bold]m[/x]", "messages": []}')

    assert outcome.code == 0
    assert "[bold]m[/x]" in outcome.stdout


def test_the_version_is_shown(steplane: Steplane) -> None:
    outcome = steplane("--version")

    assert (outcome.code, outcome.stdout) == (0, f"steplane {__version__}\n")


def test_headers_and_a_tenant_can_be_given_and_what_is_changed_is_said(steplane: Steplane, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        "default_pool: a\npools: {a: {replicas: [http://h:1]}}\nrules:\n"
        "  - {name: gold, when: {headers: {x-tier: gold}, tenant: acme}, pool: a, cap: {max_tokens: 5}}\n"
    )
    body = b'{"messages": [], "max_tokens": 50}'

    taken = steplane("explain", "-", "-c", path, "-H", "X-Tier: gold", "--tenant", "acme", stdin=body)
    other = steplane("explain", "-", "-c", path, "-H", "X-Tier: silver", stdin=body)
    wrong = steplane("explain", "-", "-c", path, "-H", "silver", stdin=body)

    assert "rule gold" in taken.stdout
    assert "body: max_tokens=5 (then 0 µs each step" in taken.stdout
    assert "not gold: headers.x-tier is silver, not gold; tenant is , not acme" in other.stdout
    assert wrong.code == 1
    assert "expected a name and a value, as in --header 'x-tier: gold'" in wrong.stderr


def test_pools_that_the_tenant_may_not_use_are_passed_over(steplane: Steplane, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(
        "default_pool: a\npools: {a: {replicas: [http://h:1]}, b: {replicas: [http://h:2]}}\n"
        "tenants: {named: {acme: {pools: [b]}, blue: {pools: [a]}}}\n"
        "rules: [{name: all, pool: a, fallbacks: [b]}, {name: other, pool: b}]\n"
    )

    said = {
        name: steplane("explain", "-", "-c", path, "--tenant", name, stdin=b"{}").stdout for name in ("acme", "blue")
    }

    assert "pool b, rule all" in said["acme"]
    assert "tenant 'acme' may not use pool 'a'" in said["acme"]
    assert "pool a, rule all" in said["blue"]
