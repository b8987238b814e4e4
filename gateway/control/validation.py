"""From pydantic's findings to ours: what was expected, in words for people, and the line where it stands.

Knows no particular key of the configuration, only how models and their errors are built.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from gateway.control.document import Document, Location
from gateway.control.problem import Problem, shown

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
PATH_PATTERN = r"^/[!-~]*$"
HEADER_PATTERN = r"^[A-Za-z0-9-]{1,64}$"
MODE_PATTERN = r"^0?[0-7]{3}$"
PSEUDONYM_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"

_EXPECTED: Mapping[str, str] = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "list_type": "a list",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than_equal": "a number of at most {le:g}",
    "string_too_short": "text of at least {min_length} character",
    "string_too_long": "text of at most {max_length} characters",
    "too_short": "at least {min_length} entry",
    "literal_error": "{expected}",
    "custom": "{expected}",
}
_EXPECTED_BY_PATTERN: Mapping[str, str] = {
    NAME_PATTERN: "a name of letters, digits and . _ : - that begins with a letter or digit",
    PATH_PATTERN: "a path that begins with / and holds no space",
    HEADER_PATTERN: "the name of a header: letters, digits and hyphens",
    MODE_PATTERN: "permissions in octal, as in 0660",
    PSEUDONYM_PATTERN: "a name of letters, digits and . _ -",
}


_CONVERSIONS: Mapping[str, Callable[[str], object]] = {
    "int_type": int,
    "float_type": float,
    "bool_type": {"true": True, "false": False}.__getitem__,
}

Model = TypeVar("Model", bound=BaseModel)


def custom_error(expected: str, hint: str | None = None) -> PydanticCustomError:
    """What a validator of ours raises: `expected` and `hint` go into the problem as they are."""
    return PydanticCustomError("custom", "{expected}", {"expected": expected, "hint": hint})


def validate(model: type[Model], document: Document) -> Model:
    """The model of a document. Raises ValidationError.

    What a variable holds is text, unless its key wants a number or a truth value: the key decides, not the text, so
    that a password of digits stays one.
    """
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        converted = [_convert(document, details) for details in error.errors(include_url=False)]
        if True not in converted:
            raise
    return model.model_validate(document.data)


def _convert(document: Document, error: ErrorDetails) -> bool:
    """Put what the key wants in the place of a variable's text. False: it is no such text."""
    location, text = error["loc"], error["input"]
    convert = _CONVERSIONS.get(error["type"])
    if convert is None or not isinstance(text, str) or location not in document.origins:
        return False
    try:
        value = convert(text)
    except (ValueError, KeyError):
        return False
    holder: Any = document.data
    for step in location[:-1]:
        holder = holder[step]
    holder[location[-1]] = value
    return True


def to_problem(model: type[BaseModel], document: Document, error: ErrorDetails) -> Problem:
    """The finding behind one error of validating `document` as a `model`."""
    kind, context, value = error["type"], error.get("ctx", {}), error["input"]
    location: Location = error["loc"]
    at_key = location[-1:] == ("[key]",)
    if at_key:
        location = location[:-1]
    if kind == "extra_forbidden":
        known = list(_model_at(model, location[:-1]).model_fields)
        near = get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean {near[0]}?" if near else None
        location = as_written(location, document)
        return document.problem(location, f"one of {', '.join(known)}", "an unknown key", hint, at_key=True)
    location = as_written(location, document)
    if kind == "missing":
        return document.problem(location, "a value, for this key is required", "nothing")
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        expected = _EXPECTED_BY_PATTERN.get(pattern, f"text that matches {pattern}")
    else:
        expected = _EXPECTED[kind].format_map(context) if kind in _EXPECTED else error["msg"]
    return document.problem(location, expected, shown(value), context.get("hint"), at_key=at_key)


def as_written(location: Location, document: Document) -> Location:
    """`location` without the positions in lists of one entry that the file has without its list."""
    place: Location = ()
    for step in location:
        if not isinstance(step, int) or (*place, step) in document.values or place not in document.values:
            place = (*place, step)
    return place


def _model_at(model: type[BaseModel], location: Location) -> type[BaseModel]:
    """The model of the mapping at `location` in a document that is a `model`."""
    annotation: Any = model
    for step in location:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            annotation = _plain(annotation.model_fields[str(step)].annotation)
        else:  # an entry of a list or of a mapping
            annotation = _plain(get_args(annotation)[-1])
    found: type[BaseModel] = annotation
    return found


def _plain(annotation: Any) -> Any:
    """`X` for `X | None`."""
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return parts[0] if type(None) in get_args(annotation) else annotation
