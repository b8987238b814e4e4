"""The JSON Schema of a rule's `when:`, from the vocabulary of routing: what an editor offers and underlines.

It says less than `steplane check` does: how a comparison is spelled is no schema's business.
"""

from typing import Any

from gateway.routing.rule import CEL
from gateway.routing.variables import VARIABLES, Kind, Variable

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_NUMBER: dict[str, Any] = {"type": ["number", "string"]}


def when_schema() -> dict[str, Any]:
    """An expression in CEL, or a mapping of conditions."""
    properties = {name: {"description": each.about, **_value(each)} for name, each in VARIABLES.items()}
    properties[CEL] = {"description": "an expression in CEL", **_TEXT}
    conditions = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"anyOf": [_TEXT, conditions]}


def _value(variable: Variable) -> dict[str, Any]:
    """One value of a variable, or a list of them."""
    if variable.kind is Kind.texts:
        return {"type": "object", "additionalProperties": _either({**_TEXT, "type": ["string", "boolean"]})}
    return _either(_single(variable))


def _single(variable: Variable) -> dict[str, Any]:
    match variable.kind:
        case Kind.choice:
            return {"enum": list(variable.choices or ())}
        case Kind.flag:
            return {"type": "boolean"}
        case Kind.number:
            return _NUMBER
        case Kind.count | Kind.optional:
            return {"type": ["number", "string", "boolean"]}
    return _TEXT


def _either(single: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [single, {"type": "array", "items": single, "minItems": 1}]}
