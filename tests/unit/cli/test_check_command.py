from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.control.shipped import shipped_file

Steplane = Callable[..., Any]


def test_a_valid_configuration_gets_one_line_and_exit_code_0(steplane: Steplane) -> None:
    path = shipped_file("gateway.yaml")

    outcome = steplane("check", "-c", path)

    assert outcome.code == 0
    assert outcome.stdout == f"{path} is valid: 3 pools, 4 replicas, 11 rules\n"
    assert outcome.stderr == ""


def test_all_problems_are_listed_on_stderr_with_exit_code_1(steplane: Steplane, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("default_pool: b\npools:\n  a: {replicas: [http://h:1]}\nrules: [{name: r, pool: c}]\n")

    outcome = steplane("check", "--config", path)

    assert outcome.code == 1
    assert outcome.stdout == ""
    assert outcome.stderr == (
        f"steplane: {path} has 2 problems:\n"
        f"  {path}:1:15: default_pool: expected one of the pools a, found 'b'\n"
        f"  {path}:4:25: rules[0].pool: expected one of the pools a, found 'c'\n"
    )


def test_warnings_are_shown_and_do_not_fail(steplane: Steplane, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("default_pool: a\npools:\n  a: {replicas: [http://h:1]}\n  b: {replicas: [http://h:2]}\n")

    outcome = steplane("check", "-c", path)

    assert outcome.code == 0
    assert outcome.stdout == f"{path} is valid: 2 pools, 2 replicas, 0 rules\n"
    assert outcome.stderr.startswith(f"warning: {path}:4:3: pools.b: ")


def test_a_file_that_is_missing_is_one_problem(steplane: Steplane, tmp_path: Path) -> None:
    outcome = steplane("check", "-c", tmp_path / "none.yaml")

    assert outcome.code == 1
    assert "has 1 problem:" in outcome.stderr
    assert "expected a readable file, found no such file" in outcome.stderr


def test_without_a_file_the_usage_is_shown_with_exit_code_2(steplane: Steplane) -> None:
    outcome = steplane("check")

    assert outcome.code == 2
    assert "--config" in outcome.stderr


LINE = (
    '{"at":1,"method":"POST","path":"/v1/chat/completions","tenant":"","pool":"a","rule":"default",'
    '"signature":"s1-1","grammar_key":"","features":{"api":"chat","stream":true},'
    '"cost":{"compile_ms":0,"step_us":0,"by_hook":{},"heavy":false}}\n'
)


def test_recorded_decisions_are_made_again_and_what_moves_is_shown(steplane: Steplane, tmp_path: Path) -> None:
    path, traffic = tmp_path / "f.yaml", tmp_path / "traffic.ndjson"
    path.write_text(
        "default_pool: a\npools: {a: {replicas: [http://h:1]}, b: {replicas: [http://h:2]}}\n"
        "rules: [{name: streams, when: {stream: true}, pool: b}]\n"
    )
    traffic.write_text(LINE * 3 + LINE.replace(',"stream":true', ""))

    outcome = steplane("check", "-c", path, "--against", traffic)

    assert outcome.code == 0
    assert "3 requests of 4 would go elsewhere (75.0%)." in outcome.stdout
    moved = outcome.stdout.splitlines()[-1].split()
    assert moved == ["a", "b", "3", "75.0%", "default", "→", "streams", "s1-1", "(3)"]


def test_a_line_that_is_no_decision_is_named(steplane: Steplane, tmp_path: Path) -> None:
    path, traffic = tmp_path / "f.yaml", tmp_path / "traffic.ndjson"
    path.write_text("default_pool: a\npools: {a: {replicas: [http://h:1]}}\n")
    traffic.write_text(LINE + "{}\n")

    outcome = steplane("check", "-c", path, "--against", traffic)

    assert outcome.code == 1
    assert f"{traffic}:2: no recorded decision" in outcome.stderr
