"""One grammar that a request asks for, in one spelling for every door it can come through.

Owns the doors: `response_format`, `structured_outputs`, `guided_*`, `text.format`, `output_format`, SGLang's and vLLM's
plain fields, and tools that become a grammar. Analyses nothing and prices nothing.
"""

from collections.abc import Generator
from dataclasses import dataclass

import orjson

from gateway.hookcost.features import Grammar
from gateway.hookcost.values import MalformedError, boolean, mapping, text, texts

MAX_GRAMMAR_BYTES = 256 * 1024
MAX_GRAMMAR_MARKS = 40_000
"""Brackets, braces and commas. A grammar of more bytes or marks is not looked into: it is heavy by definition."""
_TURN_TOOLS = 250


@dataclass(frozen=True, slots=True)
class Constraint:
    """What constrains the output.

    kind:   the automaton that the engine builds.
    value:  a JSON schema (dict or bool), the source text of a regex or EBNF, a list of choices, a structural tag
            (dict), or for tools the list of their parameter schemas. A schema or tag whose text is beyond the bounds
            stays the text that it is.
    param:  the field of the body it came from, for messages and explanations.
    """

    kind: Grammar
    value: object
    param: str


def schema_constraint(value: object, param: str) -> Constraint:
    """A JSON schema given as an object, a boolean, or the text of either."""
    if isinstance(value, str):
        if bound_of(value):
            return Constraint(Grammar.json_schema, value, param)
        if value == "$$ANY$$":  # SGLang's name for any JSON
            return _any_object(param)
        try:
            value = orjson.loads(value)
        except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
            raise MalformedError(param, f"a JSON schema; its text is not JSON ({error})", value) from None
    if isinstance(value, dict | bool):
        return Constraint(Grammar.json_schema, value, param)
    raise MalformedError(param, "a JSON schema (an object, or the text of one)", value)


def text_constraint(kind: Grammar, value: object, param: str) -> Constraint | None:
    """A regex or an EBNF; the engines read null and an empty string as none."""
    source = text(value, param)
    return Constraint(kind, source, param) if source else None


def tag_constraint(value: object, param: str) -> Constraint:
    """A structural tag given as an object or as the text of one."""
    if isinstance(value, str):
        if bound_of(value):
            return Constraint(Grammar.structural_tag, value, param)
        try:
            value = orjson.loads(value)
        except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
            raise MalformedError(param, f"a structural tag; its text is not JSON ({error})", value) from None
    if not isinstance(value, dict):
        raise MalformedError(param, "a structural tag (an object, or the text of one)", value)
    return Constraint(Grammar.structural_tag, value, param)


def format_constraint(value: object, param: str) -> Constraint | None:
    """What `response_format`, `text.format`, `output_format` or `output_config.format` asks for."""
    form = mapping(value, param)
    if form is None:
        return None
    kind = form.get("type")
    if kind == "json_schema":
        return _json_schema_format(form, param)
    if kind == "json_object":
        # Cohere's spelling of a schema.
        schema = form.get("json_schema")
        return schema_constraint(schema, f"{param}.json_schema") if schema else _any_object(param)
    if kind == "structural_tag":
        return tag_constraint(form, param)
    if kind == "regex":
        return text_constraint(Grammar.regex, form.get("pattern", form.get("regex")), f"{param}.pattern")
    if kind in ("grammar", "ebnf", "lark_grammar"):
        return text_constraint(Grammar.ebnf, form.get("grammar", form.get("ebnf")), f"{param}.grammar")
    if kind is not None and not isinstance(kind, str):
        raise MalformedError(f"{param}.type", "a string", kind)
    return None


def _json_schema_format(form: dict[str, object], param: str) -> Constraint:
    """OpenAI nests the schema in `json_schema.schema`; /v1/responses, Anthropic and some SDKs put it in `schema`."""
    wrapped = form.get("json_schema")
    if isinstance(wrapped, dict) and wrapped:
        if "schema" in wrapped:
            return schema_constraint(wrapped["schema"], f"{param}.json_schema.schema")
        raise MalformedError(f"{param}.json_schema.schema", "a JSON schema", None)
    if wrapped is not None and not isinstance(wrapped, dict):
        return schema_constraint(wrapped, f"{param}.json_schema")
    return schema_constraint(form.get("schema"), f"{param}.schema")


def _any_object(param: str) -> Constraint:
    return Constraint(Grammar.json_object, True, param)


def structured_outputs_constraints(value: object, param: str) -> list[Constraint]:
    """vLLM's `structured_outputs` (and the removed `guided_*` fields under its names)."""
    form = mapping(value, param)
    if form is None:
        return []
    found: list[Constraint | None] = []
    for name, given in form.items():
        if given is not None and name in _STRUCTURED:
            found.append(_STRUCTURED[name](given, f"{param}.{name}"))
    return [constraint for constraint in found if constraint is not None]


def choice_constraint(value: object, param: str) -> Constraint | None:
    """vLLM's list of literal answers."""
    if value is not None and not isinstance(value, list):
        raise MalformedError(param, "an array of strings", value)
    choices = texts(value, param)
    return Constraint(Grammar.choice, choices, param) if choices else None


def json_object_constraint(value: object, param: str) -> Constraint | None:
    """vLLM's switch for any JSON object."""
    return _any_object(param) if boolean(value, param) else None


def _regex(value: object, param: str) -> Constraint | None:
    return text_constraint(Grammar.regex, value, param)


def _ebnf(value: object, param: str) -> Constraint | None:
    return text_constraint(Grammar.ebnf, value, param)


def optional_schema_constraint(value: object, param: str) -> Constraint | None:
    """A schema field in which null and an empty string mean none."""
    return None if value is None or value == "" else schema_constraint(value, param)


def optional_tag_constraint(value: object, param: str) -> Constraint | None:
    """A structural tag field in which null and an empty string mean none."""
    return None if value is None or value == "" else tag_constraint(value, param)


def bound_of(text: str | bytes) -> str | None:
    """The bound that the text of a grammar exceeds, or None: one that does is not even parsed."""
    if len(text) > MAX_GRAMMAR_BYTES:
        return f"a grammar of more than {MAX_GRAMMAR_BYTES // 1024} KiB"
    if len(text) <= MAX_GRAMMAR_MARKS:
        return None
    if isinstance(text, str):
        marks = text.count("[") + text.count("{") + text.count(",")
    else:
        marks = text.count(b"[") + text.count(b"{") + text.count(b",")
    return f"a grammar of more than {MAX_GRAMMAR_MARKS:,} parts" if marks > MAX_GRAMMAR_MARKS else None


def canonical(constraint: Constraint) -> bytes:
    """The bytes by which a grammar is told from another: its kind, and compact JSON in the client's order of keys.

    Empty where the value is nested more than 254 levels deep, which `orjson` does not write and no engine should see.
    """
    try:
        return constraint.kind.encode() + b":" + orjson.dumps(constraint.value)
    except orjson.JSONEncodeError:
        return b""


_STRUCTURED = {
    "json": optional_schema_constraint,
    "regex": _regex,
    "choice": choice_constraint,
    "grammar": _ebnf,
    "json_object": json_object_constraint,
    "structural_tag": optional_tag_constraint,
}

DOORS = {
    "response_format": format_constraint,
    "output_format": format_constraint,
    "json_schema": optional_schema_constraint,
    "regex": _regex,
    "ebnf": _ebnf,
    "structural_tag": optional_tag_constraint,
    "guided_json": optional_schema_constraint,
    "guided_regex": _regex,
    "guided_choice": choice_constraint,
    "guided_grammar": _ebnf,
    "guided_json_object": json_object_constraint,
}
"""Fields that hold one grammar, whichever engine or version reads them: each with what reads its value."""


def tools_constraint(
    tools: list[object], choice: object, all_strict: bool, param: str
) -> Generator[None, None, Constraint | None]:
    """The grammar that attached tools become, or None where the engine leaves the answer free; yields every few tools.

    `tool_choice` required (Anthropic: any) or naming a tool constrains; with auto only strict tools do. Each dialect's
    spelling of a tool is understood: OpenAI's nested `function`, the flat one of /v1/responses, Anthropic's
    `input_schema`.
    """
    mode, named = _choice_of(choice)
    schemas: list[object] = []
    for index, tool in enumerate(tools):
        if index % _TURN_TOOLS == _TURN_TOOLS - 1:
            yield
        if not isinstance(tool, dict):
            raise MalformedError(f"{param}[{index}]", "an object", tool)
        inner = tool.get("function")
        if inner is not None and not isinstance(inner, dict):
            raise MalformedError(f"{param}[{index}].function", "an object", inner)
        function = tool if inner is None else inner
        strict = all_strict or function.get("strict", False)
        if type(strict) is not bool:
            strict = boolean(strict, f"{param}[{index}].strict")
        name = function.get("name")
        if mode == "none" or (mode == "auto" and not strict) or (named is not None and name != named):
            continue
        schema = function.get("parameters", function.get("input_schema"))
        if schema is None:
            continue
        if not isinstance(schema, dict):
            schema = schema_constraint(schema, f"{param}[{index}].parameters").value
        schemas.append(schema)
    return Constraint(Grammar.tools, schemas, param) if schemas else None


def _choice_of(choice: object) -> tuple[str, str | None]:
    """The mode (`auto`, `none`, `required`) and the tool named, if one is."""
    if choice is None:
        return "auto", None
    if isinstance(choice, str):
        lowered = choice.lower()
        return ("required" if lowered in ("required", "any") else lowered if lowered == "none" else "auto"), None
    if not isinstance(choice, dict):
        raise MalformedError("tool_choice", "a string or an object", choice)
    kind = choice.get("type")
    if kind in ("auto", "none"):
        return str(kind), None
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    if name is not None and not isinstance(name, str):
        raise MalformedError("tool_choice.name", "a string", name)
    return "required", name
