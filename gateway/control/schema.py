"""The JSON Schema of the configuration, for editors and for whoever writes configurations by program.

Made from the models, with their docstrings as descriptions. It says what a file may look like; what its parts demand of
each other only `steplane check` says.
"""

import inspect
import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from gateway.control.config import Config
from gateway.control.network import Address, Origin

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_FIELD = re.compile(r"^(\w+(?:, \w+)*): +(\S.*)$")
_SECOND_FIELD = re.compile(r"(?<=[.;]) (?=\w+: )")
_VARIABLE: JsonSchemaValue = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}
"""Where a number or a truth value is wanted, a variable may stand for it."""


def config_schema() -> dict[str, Any]:
    """The schema, as plain data."""
    schema = Config.model_json_schema(schema_generator=_Generator)
    return {"$schema": _DIALECT, "title": "Steplane configuration", **schema}


def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """What the docstring of a model says of each key: lines such as `key: text`, gone on by lines that are set in."""
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(model.__doc__ or "").splitlines():
        found = _FIELD.match(line)
        if found is not None and all(name in model.model_fields for name in found[1].split(", ")):
            first, *others = _SECOND_FIELD.split(found[2])
            names = found[1].split(", ")
            texts.update(dict.fromkeys(names, first))
            for other in others:
                key, _, text = other.partition(": ")
                if key in model.model_fields:
                    names = [key]
                    texts[key] = text
                else:
                    for name in names:
                        texts[name] += f" {other}"
        elif line.startswith(" ") and names:
            for name in names:
                texts[name] += f" {line.strip()}"
        else:
            names = []
    return texts


_SHORT: JsonSchemaValue = {"type": ["string", "number"]}
"""A word, an address or a number in the place of a part."""
_WRAPPERS = frozenset({"nullable", "default", "function-after", "function-before", "function-wrap"})


class _Generator(GenerateJsonSchema):
    """Pydantic's, but for what it can't know: the short forms that our validators turn into the long ones."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        """A validator that runs first takes more than what it stands before: text for an address, a word for a part."""
        inner: CoreSchema = schema["schema"]
        kinds = _kinds(inner)
        if kinds <= {"dataclass"}:
            return {"type": "string"}
        plain = self.generate_inner(inner)
        if "list" in kinds:
            return {"anyOf": [plain, {"type": ["string", "object"]}]}
        return {"anyOf": [plain, _SHORT]} if "model" in kinds else plain

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """With what the docstring says of each key."""
        made = super().model_schema(schema)
        properties = made.get("properties", {})
        for name, text in field_texts(schema["cls"]).items():
            if name in properties:
                properties[name] = {**properties[name], "description": text}
        has_short_form = "function-before" in _chain(schema["schema"])
        return {"anyOf": [made, _SHORT]} if has_short_form else made

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        """Or a variable."""
        return {"anyOf": [super().int_schema(schema), _VARIABLE]}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """Or a variable."""
        return {"anyOf": [super().float_schema(schema), _VARIABLE]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        """Or a variable."""
        return {"anyOf": [super().bool_schema(schema), _VARIABLE]}

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """The key says it."""
        return False

    def encode_default(self, dft: Any) -> Any:
        """As it would be written."""
        return _written(dft)


def _kinds(schema: CoreSchema) -> set[str]:
    """What a schema is at its core, past optional, defaults and validators."""
    kind = schema["type"]
    if kind == "union":
        choices = [choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]]
        return set().union(*(_kinds(choice) for choice in choices))
    if kind == "definition-ref":  # to an address, which is a dataclass, or to a part of the configuration
        return {"dataclass" if schema["schema_ref"].startswith(f"{Address.__module__}.") else "model"}
    return _kinds(schema["schema"]) if kind in _WRAPPERS else {kind}


def _chain(schema: CoreSchema) -> list[str]:
    """A schema's kind, and those that it wraps."""
    kinds = [schema["type"]]
    while schema["type"] in _WRAPPERS:
        schema = schema["schema"]
        kinds.append(schema["type"])
    return kinds


def _written(value: Any) -> Any:
    match value:
        case BaseModel():
            fields = {name: _written(getattr(value, name)) for name in type(value).model_fields}
            return {name: each for name, each in fields.items() if each is not None}
        case dict():
            return {key: _written(each) for key, each in value.items()}
        case list() | tuple() | frozenset() | set():
            return [_written(each) for each in value]
        case Address() | Origin():
            return str(value)
    return value
