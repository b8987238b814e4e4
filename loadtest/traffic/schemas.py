"""Schemas to ask for: made up here, or read from a folder of the user's own."""

import gzip
import itertools
import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from loadtest.bench_routing.schemas import schemas

Schema = dict[str, Any]


class SchemaError(Exception):
    """There are no schemas where some were said to be; the text says what was expected."""


def small() -> Schema:
    """Three closed properties: what costs next to nothing."""
    return _closed(
        {"city": {"type": "string", "maxLength": 24}, "days": {"type": "integer"}, "open": {"type": "boolean"}}
    )


def one_word(name: str) -> Schema:
    """One closed property of text."""
    return _closed({name: {"type": "string"}})


def large(number: int, properties: int = 40) -> Schema:
    """About 300 bytes for each property. Another `number` makes a schema that no engine has compiled yet."""
    return _closed(
        {
            f"field_{number}_{at}": _closed(
                {
                    "kind": {"enum": [f"kind {number} {at} {each}" for each in range(4)]},
                    "code": {"type": "string", "pattern": f"^[A-Z]{{2,{3 + at % 5}}}-[0-9]{{4}}$"},
                    "note": {"type": "string", "maxLength": 40 + at},
                }
            )
            for at in range(properties)
        }
    )


def open_object(number: int, names: int) -> Schema:
    """An object that admits more than it names: xgrammar compiles it for 25 ms and more for each name."""
    described = {f"{word}_{number}": {"type": "string"} for word in _words(names)}
    return {"type": "object", "properties": described, "required": [], "additionalProperties": True}


def some(folder: Path | None, count: int) -> list[Schema]:
    """`count` schemas at most: those of the folder, or made-up ones of what applications ask for.

    A folder has a schema in each `*.json`, or lines of `{"schema": …}` in `*.jsonl` and `*.jsonl.gz`.

    Raises:
        SchemaError: there is none in the folder, or a file is no JSON.
    """
    if folder is None:
        return schemas(count)
    found = list(itertools.islice(_read(folder), count))
    if not found:
        raise SchemaError(
            f"{folder}: no schema; expected *.json, or *.jsonl and *.jsonl.gz with a key schema in each line"
        )
    return found


@lru_cache
def _words(count: int) -> tuple[str, ...]:
    """So many different made-up words."""
    chance = random.Random(7)
    syllables = [
        "ba",
        "co",
        "de",
        "fi",
        "gu",
        "ha",
        "jo",
        "ke",
        "li",
        "mu",
        "na",
        "po",
        "re",
        "si",
        "tu",
        "ve",
        "wo",
        "zi",
    ]
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(chance.choices(syllables, k=4))] = None
    return tuple(words)


def _closed(properties: dict[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _read(folder: Path) -> Iterator[Schema]:
    for path in sorted(folder.iterdir() if folder.is_dir() else [folder]):
        try:
            if path.suffix == ".json":
                yield from _objects([orjson.loads(path.read_bytes())])
            elif path.name.endswith((".jsonl", ".jsonl.gz")):
                data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
                yield from _objects(orjson.loads(line).get("schema") for line in data.splitlines() if line)
        except (OSError, ValueError, AttributeError) as error:
            raise SchemaError(f"{path}: cannot be read as schemas: {error}") from None


def _objects(values: Any) -> Iterator[Schema]:
    """Those that ask for an object; a bare `true` asks for nothing."""
    for value in values:
        if isinstance(value, dict) and value.get("type") == "object":
            yield value
