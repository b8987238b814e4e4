"""What holds for every body, schema, regex and grammar, whatever is in it."""

import string
from typing import Any

import orjson
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gateway.hookcost import Classification, Classifier, Refusal
from gateway.hookcost.bill import Bill
from gateway.hookcost.ebnf import EbnfBoundError, EbnfError, read_ebnf
from gateway.hookcost.regex import RegexBoundError, RegexError, read_regex
from gateway.hookcost.sampling import SAMPLING_KEYS
from gateway.hookcost.schemawalk import MAX_DEPTH, MAX_NODES
from gateway.hookcost.skim import MAX_PARAMETER_BYTES, PROMPT_KEYS, skim
from gateway.hookcost.xgrammar import XgrammarWalk
from tests.unit.hookcost.conftest import CHAT

PATHS = st.sampled_from(
    [
        CHAT,
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/generate",
        "/vertex_generate",
        "/inference/v1/generate",
    ]
)
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
KEYWORDS = st.sampled_from(
    [
        *(
            "type",
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "items",
            "prefixItems",
            "enum",
        ),
        *("const", "anyOf", "oneOf", "allOf", "not", "pattern", "format", "minLength", "maxLength", "minItems", "$ref"),
        *("maxItems", "minimum", "maximum", "minProperties", "$defs", "description"),
    ]
)
ODD_SCHEMAS = st.recursive(
    SCALARS | st.sampled_from(["string", "object", "array", "#", "#/$defs/a", "^.{1,200}$", "(a+)+"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYWORDS, inner, max_size=5),
    max_leaves=20,
)
NAMES = st.text(alphabet=string.ascii_lowercase, min_size=1, max_size=10)
LEAVES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "boolean"},
        {"type": "string", "maxLength": 20},
        {"type": "string", "format": "uri"},
        {"type": "string", "pattern": "^[a-z]{1,8}$"},
        {"type": "string", "pattern": "^.{1,255}$"},
        {"enum": ["a", "b", "c"]},
    ]
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda properties, is_open, needed: {
            "type": "object",
            "properties": properties,
            **({"additionalProperties": True} if is_open else {}),
            **({"required": list(properties)} if needed else {}),
        },
        st.dictionaries(NAMES, inner, min_size=1, max_size=5),
        st.booleans(),
        st.booleans(),
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        objects(inner)
        | st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=12,
)
calm = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def finished(begun: Any) -> Any:
    while not isinstance(begun, Classification):
        try:
            next(begun)
        except StopIteration as done:
            return done.value
    return begun


def classified(classifier: Classifier, schema: object) -> Classification:
    return classifier.classify(CHAT, orjson.dumps({"messages": [], "guided_json": schema}))


@calm
@given(path=PATHS, body=st.binary(max_size=200))
def test_any_bytes_are_classified(classifier: Classifier, path: str, body: bytes) -> None:
    assert classifier.classify(path, body) == finished(classifier.begin(path, body))


@calm
@given(
    path=PATHS,
    body=st.dictionaries(
        st.sampled_from(sorted(SAMPLING_KEYS | PROMPT_KEYS | {"tools"})),
        JSON,
        max_size=5,
    ),
)
def test_any_values_of_recognised_fields_are_classified(
    classifier: Classifier, path: str, body: dict[str, Any]
) -> None:
    seen = classifier.classify(path, orjson.dumps(body))
    assert seen.signature.startswith("s1-")
    assert seen.refusal is None or seen.refusal.status == 400
    assert seen.cost.step_us >= 0


@calm
@given(schema=ODD_SCHEMAS)
def test_any_schema_is_classified(classifier: Classifier, schema: object) -> None:
    seen = classified(classifier, schema)
    for cost in seen.by_backend.values():
        assert cost.compile_ms >= 0
        assert cost.step_us >= 0


@calm
@given(schema=ODD_SCHEMAS, work=st.integers(1, 50))
def test_the_walk_stays_within_its_bounds(classifier: Classifier, schema: object, work: int) -> None:
    walk = XgrammarWalk(schema, classifier.model.vocabulary, Bill())
    while not walk.step(work):
        pass
    assert walk.bill.nodes <= MAX_NODES + 1
    assert walk.bill.depth <= MAX_DEPTH + 1


def test_a_schema_that_multiplies_is_cut_off_at_the_bound(
    classifier: Classifier,
) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(30):
        schema = {"type": ["object", "object"], "properties": {"x": schema}}
    assert classified(classifier, schema).cost.heavy is not None


@calm
@given(one=SCHEMAS, other=SCHEMAS)
def test_equal_grammar_keys_mean_equal_grammars(classifier: Classifier, one: Any, other: Any) -> None:
    same = classified(classifier, one).grammar_key == classified(classifier, other).grammar_key
    assert same == (orjson.dumps(one) == orjson.dumps(other))


def annotated(schema: Any) -> Any:
    """The same schema with annotations, keywords in another order, and an `allOf` of one around each part."""
    if isinstance(schema, dict):
        turned = {name: schema[name] for name in reversed(list(schema)) if name != "properties"}
        if "properties" in schema:
            inner = {name: {"allOf": [annotated(value)]} for name, value in schema["properties"].items()}
            turned["properties"] = inner
        for name in ("items",):
            if name in turned:
                turned[name] = annotated(turned[name])
        if "anyOf" in turned:
            turned["anyOf"] = [annotated(option) for option in turned["anyOf"]]
        return {"description": "for people", "title": "T", **turned}
    return schema


@calm
@given(schema=SCHEMAS)
def test_rewrites_that_keep_the_meaning_keep_cost_and_shape_on_xgrammar(classifier: Classifier, schema: Any) -> None:
    only = Classifier(classifier.model, backends=(("xgrammar", None),))
    plain, rewritten = classified(only, schema), classified(only, annotated(schema))
    referred = classified(only, {"$ref": "#/$defs/it", "$defs": {"it": schema}})
    as_text = only.classify(
        CHAT,
        orjson.dumps({"messages": [], "json_schema": orjson.dumps(schema).decode()}),
    )
    assert as_text.grammar_key == plain.grammar_key
    for other in (rewritten, referred, as_text):
        assert other.cost.step_us == plain.cost.step_us
        assert abs(other.cost.compile_ms - plain.cost.compile_ms) < 1e-6
        assert other.signature == plain.signature


def renamed(schema: Any, names: dict[str, str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    turned = dict(schema)
    if "properties" in schema:
        turned["properties"] = {names[name]: renamed(value, names) for name, value in schema["properties"].items()}
    if "required" in schema:
        turned["required"] = [names[name] for name in schema["required"]]
    if "items" in schema:
        turned["items"] = renamed(schema["items"], names)
    if "anyOf" in schema:
        turned["anyOf"] = [renamed(option, names) for option in schema["anyOf"]]
    if "enum" in schema:
        turned["enum"] = [f"{names.get('', 'v')}{value}" for value in schema["enum"]]
    return turned


def names_in(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    found = set(schema.get("properties", ()))
    for part in [
        *schema.get("properties", {}).values(),
        schema.get("items"),
        *schema.get("anyOf", ()),
    ]:
        found |= names_in(part)
    return found


@calm
@given(schema=SCHEMAS, dice=st.randoms(use_true_random=False))
def test_a_template_with_random_names_is_one_shape(classifier: Classifier, schema: Any, dice: Any) -> None:
    old = sorted(names_in(schema))
    fresh = {
        name: f"{''.join(dice.choices(string.ascii_letters, k=dice.randint(3, 14)))}_{i}" for i, name in enumerate(old)
    }
    other = renamed(schema, {**fresh, "": dice.choice("xyz")})
    assert classified(classifier, schema).signature == classified(classifier, other).signature


@calm
@given(schema=objects(SCHEMAS), name=NAMES, value=SCHEMAS)
def test_a_further_property_never_makes_it_cheaper(classifier: Classifier, schema: Any, name: str, value: Any) -> None:
    assume(name not in schema["properties"])
    larger = {**schema, "properties": {**schema["properties"], name: value}}
    before, after = classified(classifier, schema), classified(classifier, larger)
    for backend, cost in before.by_backend.items():
        assert after.by_backend[backend].compile_ms >= cost.compile_ms - 1e-9
        assert after.by_backend[backend].step_us >= cost.step_us - 1e-9


@calm
@given(source=st.text(alphabet="ab[]()*+?{}|\\^$.-,1259dwsSbpx:=!<>", max_size=40))
def test_any_regex_is_read_or_refused(source: str) -> None:
    try:
        regex = read_regex(source)
    except (RegexError, RegexBoundError):
        return
    assert regex.states >= 0


@calm
@given(source=st.text(alphabet="abr:=()*+?{}|\"'[]/ \n#1,\\", max_size=60))
def test_any_raw_grammar_is_read_or_refused(source: str) -> None:
    try:
        ebnf = read_ebnf(source)
    except (EbnfError, EbnfBoundError):
        return
    assert ebnf.rules > 0


@calm
@given(
    body=st.dictionaries(
        st.sampled_from(["model", "n", "stop", "tools", "odd", "messages", "prompt"]),
        JSON,
        max_size=6,
    )
)
def test_what_is_kept_of_a_large_body_is_what_was_in_it(body: dict[str, Any]) -> None:
    padded = {
        **body,
        "tools": [JSON_PAD, body, [body] * 40, JSON_PAD],
        "user": {"x": [body] * 30},
    }
    raw = orjson.dumps(padded, option=orjson.OPT_INDENT_2)
    assume(len(raw) < MAX_PARAMETER_BYTES)
    turns = skim(raw, prompt_text=True)
    while True:
        try:
            next(turns)
        except StopIteration as done:
            skimmed = done.value
            break
    assert not isinstance(skimmed, Refusal)
    assert skimmed.heavy is None or "tools" in skimmed.heavy
    assert skimmed.data == {key: value for key, value in orjson.loads(raw).items() if key not in PROMPT_KEYS}


JSON_PAD = {"name": "x" * 30_000, "list": list(range(4000))}
