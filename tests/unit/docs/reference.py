"""docs/reference.md, made from the models of the configuration: `make docs-reference` writes it.

Every key with its kind, its default and what the docstring of its part says of it. Knows no key itself.
"""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gateway.control.config import Config
from gateway.control.part import Part
from gateway.control.schema import config_schema, field_texts
from tests.unit.docs.markdown import KINDS, cell, escaped

FILE = Path(__file__).resolve().parents[3] / "docs" / "reference.md"

_HEAD = """\
# Every key of the configuration

Made from the code (`make docs-reference`). [configuration.md](configuration.md) says how files are read,
`config/gateway.yaml` shows the keys in use, `steplane schema` prints the same for editors. Durations (`_s`) are in
seconds, sizes (`_bytes`) in bytes, step times (`_us`) in microseconds.
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the configuration and where it stands, as in `pools.NAME.health`."""

    path: str
    model: type[BaseModel]


def sections() -> Iterator[Section]:
    """All of them, each model where it stands first, in the order of the keys."""
    waiting = [Section("", Config)]
    seen: set[type[BaseModel]] = set()
    while waiting:
        section = waiting.pop(0)
        if section.model in seen:
            continue
        seen.add(section.model)
        yield section
        inner = [
            Section(".".join(filter(None, (section.path, name + suffix))), model)
            for name, field in section.model.model_fields.items()
            for model, suffix in _parts(field.annotation)
        ]
        waiting = inner + waiting


def text() -> str:
    """The whole page."""
    defined = config_schema()
    models = {name: _object(found) for name, found in defined["$defs"].items()}
    models[Config.__name__] = defined
    lines = [_HEAD]
    for section in sections():
        lines += [f"## {f'`{section.path}`' if section.path else 'At the top'}", ""]
        about = _about(section.model)
        lines += [about, ""] if about else []
        lines += ["| key | kind | default | |", "|---|---|---|---|"]
        texts = field_texts(section.model)
        properties = models.get(section.model.__name__, {}).get("properties", {})
        for name, field in section.model.model_fields.items():
            kind = _kind(properties.get(name, {}), field)
            lines.append(f"| `{name}` | {kind} | {_default(field)} | {cell(texts.get(name, ''))} |")
        lines.append("")
    return "\n".join(lines)


def _parts(annotation: Any, suffix: str = "") -> Iterator[tuple[type[BaseModel], str]]:
    """The models in an annotation, and how a path goes on to them."""
    if inspect.isclass(annotation) and issubclass(annotation, Part):
        yield annotation, suffix
        return
    origin = getattr(annotation, "__origin__", None)
    suffix += {list: "[]", dict: ".NAME"}.get(origin, "") if inspect.isclass(origin) else ""
    for argument in get_args(annotation):
        yield from _parts(argument, suffix)


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """The long form of a part that has a short one, too."""
    for each in schema.get("anyOf", []):
        if "properties" in each:
            found: dict[str, Any] = each
            return found
    return schema


def _about(model: type[BaseModel]) -> str:
    """The paragraphs of a docstring that come before its keys."""
    paragraphs = inspect.cleandoc(model.__doc__ or "").split("\n\n")
    plain = [each for each in paragraphs if not re.match(r"^\w+(, \w+)*: ", each)]
    return escaped(" ".join(" ".join(plain).split()))


def _kind(schema: dict[str, Any], field: FieldInfo) -> str:
    named = list(dict.fromkeys(_words(schema)))
    if any(_parts(field.annotation)):
        named = ["part", *(word for word in named if word not in ("part", "mapping"))]
    return " or ".join(named) or "text"


def _words(schema: dict[str, Any]) -> Iterator[str]:
    for each in schema.get("anyOf", ()) or schema.get("oneOf", ()):
        if "\\$\\{" not in each.get("pattern", "") and each.get("type") != "null":
            yield from _words(each)
    if "enum" in schema:
        yield ", ".join(f"`{value}`" for value in schema["enum"])
    elif "const" in schema:
        yield f"`{schema['const']}`"
    elif "$ref" in schema:
        yield "part"
    elif schema.get("type") == "array":
        yield "list of " + (" or ".join(dict.fromkeys(_words(schema.get("items", {})))) or "anything")
    elif isinstance(kind := schema.get("type"), str):
        yield KINDS.get(kind, kind)
    elif isinstance(kind, list):
        yield "text"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see below"
    if value is None or value in ("", [], {}, (), frozenset()):
        return "none"
    if isinstance(value, (bool, int, float, str)):
        return (
            f"`{json.dumps(value) if isinstance(value, bool) else f'{value:g}' if isinstance(value, float) else value}`"
        )
    return (
        f"`{cell(str(value))}`" if not isinstance(value, list) or not isinstance(value[0], BaseModel) else "see below"
    )


if __name__ == "__main__":
    FILE.write_text(text())
