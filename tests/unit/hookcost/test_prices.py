"""The price list as data: what it accepts, and that the measured laws come out of it."""

import copy
from typing import Any

import pytest
import yaml

from gateway.hookcost import Classifier
from gateway.hookcost.prices import CostModel, CostModelError, cost_model_from
from tests.unit.hookcost.conftest import REPOSITORY, Ask

DATA: dict[str, Any] = yaml.safe_load((REPOSITORY / "config" / "cost_model.yaml").read_text())


def changed(path: str, value: object) -> dict[str, Any]:
    data = copy.deepcopy(DATA)
    at: Any = data
    *steps, last = path.split(".")
    for step in steps:
        at = at[int(step)] if isinstance(at, list) else at[step]
    at[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("vocabulary", None, "vocabulary"),
        ("vocabulary.size", "many", "vocabulary.size"),
        ("vocabulary.shares.lower", -1, "vocabulary.shares.lower"),
        ("vocabulary.shares.vowels", 0.1, "vocabulary.shares.vowels"),
        ("backends.xgrammar.base", 5, "backends.xgrammar.base"),
        ("backends.xgrammar.compile_ms.text", "dear", "backends.xgrammar.compile_ms.text"),
        ("backends.xgrammar.step_us.counted_class", True, "backends.xgrammar.step_us.counted_class"),
        ("backends.xgrammar.stp_us", {}, "backends.xgrammar.stp_us"),
        ("backends.xgrammar.older.0.until", 1, "backends.xgrammar.older[0].until"),
        ("hooks.stop_word", 1, "hooks.stop_word"),
        ("hooks.stop", None, "hooks.stop"),
        ("prices", {}, "cost model.prices"),
    ],
)
def test_an_entry_that_is_wrong_is_named(path: str, value: object, key: str) -> None:
    with pytest.raises(CostModelError) as error:
        cost_model_from(changed(path, value))
    assert error.value.key == key


def test_an_unknown_backend_is_refused_with_the_known_ones(model: CostModel) -> None:
    with pytest.raises(CostModelError, match="llguidance, outlines, xgrammar"):
        model.backend("guidance")


def test_prices_scale_with_the_vocabulary(model: CostModel) -> None:
    larger = cost_model_from(changed("vocabulary.size", 2 * DATA["vocabulary"]["size"]))
    small, large = model.backend("xgrammar"), larger.backend("xgrammar")
    assert large.compile_ms["text"] == pytest.approx(2 * small.compile_ms["text"])
    assert large.step_us["counted_class"] == pytest.approx(2 * small.step_us["counted_class"])


NAMES = (
    "account balance channel device element factor group handle index journal kernel label metric number owner price"
)


@pytest.mark.parametrize(
    ("schema", "low", "high"),
    [
        ({"type": "string"}, 15, 25),
        (
            {
                "type": "object",
                "properties": {name: {"type": "string"} for name in NAMES.split()},
                "additionalProperties": True,
            },
            1600,
            3000,
        ),
        ({"type": "object", "properties": {name: {"type": "string"} for name in NAMES.split()}}, 15, 40),
        ({"type": "string", "pattern": "^.{1,255}$"}, 15, 120),
        ({"type": "string", "pattern": "^[a-z]{1,100}$"}, 100, 400),
        ({"type": "string", "pattern": "^([a-z]{1,100} ){1,100}$"}, 12_000, 48_000),
        ({"type": "string", "format": "email"}, 20, 60),
        ({"type": "string", "format": "date"}, 0, 5),
        ({"type": "string", "maxLength": 255}, 0, 25),
        ({"enum": [f"{i:020d}" for i in range(10_000)]}, 800, 3200),
        ({"type": "string", "pattern": "^[\\u0410-\\u042f\\u0430-\\u044f ]{1,60}$"}, 50, 220),
        ({"type": "string", "pattern": "^[\\u4e00-\\u9fa5]{2,100}$"}, 110, 470),
        ({"type": "string", "pattern": "^[\\u4e00-\\u9fa5]+$"}, 0, 8),
    ],
)
def test_the_compile_laws_of_xgrammar_come_out(ask: Ask, schema: dict[str, Any], low: float, high: float) -> None:
    assert low <= ask.schema(schema).by_backend["xgrammar"].compile_ms <= high


@pytest.mark.parametrize(
    ("version", "schema", "compile_ms", "step_us"),
    [
        ("0.2.8", {"type": "string", "maxLength": 5}, 43, 8_800),
        ("0.2.8", {"type": "string", "maxLength": 20}, 389, 8_500),
        ("0.2.7", {"type": "string", "maxLength": 100}, 2_424, 7_900),
        ("0.2.7", {"type": "string", "maxLength": 128}, 3_108, 7_900),
        ("0.2.7", {"type": "string", "maxLength": 300}, 4_937, 1_258),
        ("0.2.7", {"type": "string", "minLength": 20}, 367, 476),
        ("0.2.7", {"type": "string", "minLength": 2000}, 1_794, 1_000),
        ("0.2.7", {"type": "string", "minLength": 10, "maxLength": 20}, 349, 7_400),
        ("0.2.7", {"type": "string", "minLength": 100, "maxLength": 200}, 3_894, 1_000),
        ("0.2.7", {"type": "string", "minLength": 500, "maxLength": 1000}, 1_775, 1_000),
        ("0.2.7", {"anyOf": [{"type": "string", "maxLength": n} for n in (20, 30, 40)]}, 2_001, 8_400),
        ("0.2.7", {"anyOf": [{"type": "array", "items": {"type": "string", "maxLength": 120}}] * 4}, 2_988, 7_900),
        ("0.2.6", {"type": "string", "pattern": "^.{1,255}$"}, 24, 36_000),
        ("0.2.5", {"type": "string", "pattern": "^.{1,255}$"}, 6_256, 88),
        (
            "0.2.2",
            {"type": "object", "properties": {"account": {}, "balance": {}}, "additionalProperties": True},
            421,
            74,
        ),
        (
            "0.2.1",
            {"type": "object", "properties": {"account": {}, "balance": {}}, "additionalProperties": True},
            22,
            44,
        ),
    ],
)
def test_prices_follow_the_version_of_xgrammar(
    model: CostModel, version: str, schema: dict[str, Any], compile_ms: float, step_us: float
) -> None:
    cost = Ask(Classifier(model, backends=(("xgrammar", version),))).schema(schema).cost
    assert compile_ms / 2 - 30 <= cost.compile_ms <= compile_ms * 2 + 30
    assert step_us / 3 - 50 <= cost.step_us <= step_us * 3 + 1000


@pytest.mark.parametrize(
    ("body", "xgrammar", "llguidance"),
    [
        ({"guided_json": {"type": "string", "pattern": "^.{1,255}$"}}, (20_000, 80_000), (0, 1500)),
        ({"guided_json": {"type": "string", "pattern": "^[a-zA-Z0-9 ]{1,200}$"}}, (11_000, 46_000), (0, 1500)),
        ({"guided_json": {"type": "string", "pattern": "^[a-z]{1,1000}$"}}, (4_000, 12_000), (0, 1500)),
        ({"guided_json": {"type": "string", "maxLength": 255}}, (0, 1000), (0, 1500)),
        ({"guided_json": {"type": "string", "pattern": "^([a-z]+)*$"}}, (0, 1000), (0, 1500)),
        ({"guided_regex": "([A-Za-z]+ ?)+"}, (20_000, 80_000), (0, 1500)),
        ({"guided_regex": "([a-z]{1,50} ){1,50}"}, (4_000, 16_000), (0, 1500)),
        ({"guided_regex": "(a+)+b"}, (500, 20_000), (0, 1500)),
        # Measured: a count that ends the text 2,528 and 2,134, behind a fence 165 and 671.
        ({"guided_regex": "[^\n]{1,50}"}, (1_000, 5_000), (700, 4_000)),
        ({"guided_regex": "[^\n]{1,50}\n"}, (0, 400), (300, 2_500)),
        ({"guided_regex": '\\{"name": "[^"]{1,40}", "age": [0-9]{1,3}\\}'}, (0, 400), (0, 2_500)),
        # Nested counts behind a space, with which tokens of the next round begin: 6,712; behind a comma: 214.
        ({"guided_regex": "([^,]{1,30},){1,30}"}, (0, 1_000), (500, 3_000)),
        ({"guided_regex": "( \\w+){0,20}"}, (200, 1_800), (900, 6_000)),
        # Rounds that go over into one another are tried in all ways, 123,263 and 152,312; fenced ones are not, 49.
        ({"guided_regex": "([a-z]{1,5} ?){1,5}"}, (10_000, 400_000), (0, 1_500)),
        ({"guided_regex": "([a-z]+,? ?){1,5}"}, (10_000, 400_000), (0, 1_500)),
        ({"guided_regex": "(- .+\n)+"}, (0, 400), (200, 1_500)),
        ({"guided_regex": "(.*,)+x"}, (10_000, 400_000), (500, 4_500)),
        ({"guided_regex": "[a-z]+"}, (0, 2000), (0, 1500)),
        ({"guided_grammar": 's ::= s s | "a" | "a" s'}, (19_000, 80_000), (27_000, 110_000)),
        ({"guided_grammar": "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]"}, (250, 2000), (2000, 4800)),
        ({"guided_grammar": "root ::= " + " ".join(['("a")?'] * 100)}, (10_000, 40_000), (0, 10_000)),
        ({"guided_grammar": 'root ::= "yes" | "no"'}, (0, 500), (0, 500)),
        ({"guided_choice": ["yes", "no"]}, (0, 500), (0, 500)),
    ],
)
def test_the_step_laws_come_out(
    ask: Ask, body: dict[str, Any], xgrammar: tuple[float, float], llguidance: tuple[float, float]
) -> None:
    costs = ask(**body).by_backend
    assert xgrammar[0] <= costs["xgrammar"].step_us <= xgrammar[1]
    assert llguidance[0] <= costs["llguidance"].step_us <= llguidance[1]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "string", "not": {"const": "x"}}, "not"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "object", "if": {}, "then": {}}, "if"),
        ({"type": "string", "format": "color"}, "format"),
        ({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 5}]}, "oneOf"),
        ({"$ref": "https://example.com/other.json"}, "out of the schema"),
        ({"$ref": "#/$defs/a b", "$defs": {"a b": {}}}, "no URI reference"),
    ],
)
def test_what_llguidance_refuses_is_said_and_xgrammar_takes_it(ask: Ask, schema: dict[str, Any], says: str) -> None:
    costs = ask.schema(schema).by_backend
    assert says in str(costs["llguidance"].refused)
    assert costs["xgrammar"].refused is None


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "a.json", "$defs": {"a": {"$id": "a.json", "type": "string", "pattern": ".{1,9}"}}},
        {
            "$id": "http://x.org/root.json",
            "properties": {"x": {"$ref": "http://x.org/a.json"}},
            "$defs": {"a": {"$id": "a.json", "type": "string", "pattern": ".{1,9}"}},
        },
        {
            "$id": "http://x.org/root.json",
            "properties": {"x": {"$ref": "http://x.org/root.json#/$defs/a"}},
            "$defs": {"a": {"type": "string", "pattern": ".{1,9}"}},
        },
    ],
)
def test_a_reference_to_a_definition_by_its_own_name_is_followed_by_llguidance(
    ask: Ask, schema: dict[str, Any]
) -> None:
    cost = ask.schema(schema).by_backend["llguidance"]
    assert cost.refused is None
    assert cost.step_us > 300


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"oneOf": [{"const": "a"}, {"const": "b"}]},
        {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]} for kind in ("a", "b")
            ]
        },
    ],
)
def test_options_that_plainly_exclude_each_other_are_taken_by_llguidance(ask: Ask, schema: dict[str, Any]) -> None:
    assert ask.schema(schema).by_backend["llguidance"].refused is None
