"""The kinds of request: what each puts into its body. One function for each, in one table.

Bodies are those of `/v1/chat/completions`, with SGLang's extensions where the API of OpenAI has no word for it.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.bench_routing.schemas import zipf
from loadtest.traffic import schemas
from loadtest.traffic.schemas import Schema

Fields = dict[str, Any]

COMPLETIONS = "/v1/completions"
"""The API that can show log probabilities of a prompt."""
_DRAWS = 100_000
_TOOLS = 8
_EBNF_WORDS = "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]"
_EBNF_AMBIGUOUS = 'root ::= s\ns ::= s s | "a" | "a" s'
_REGEX = r"([a-z]{1,50} ){1,50}"
_INNOCENT = r"^.{1,255}$"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a scenario may choose about a kind; each kind reads what concerns it.

    count:  schemas, tools, names, logprobs, stop strings or characters, as the kind counts; None: as the kind does.
    folder: where its schemas are; None: made-up ones.
    zipf:   exponent of Zipf's law by which schemas are drawn.
    fresh:  draws what no engine may have seen before; no two slices have the same one.
    """

    count: int | None = None
    folder: Path | None = None
    zipf: float = 1.0
    fresh: random.Random = field(default_factory=random.Random)


@dataclass(frozen=True, slots=True)
class Asked:
    """What one request asks beyond its prompt.

    schema: what its reply must satisfy.
    path:   where it is asked, if not where the scenario says; below COMPLETIONS a prompt is a text, not messages.
    """

    fields: Fields
    schema: Schema | None = None
    path: str | None = None


Kind = Callable[[Choice, random.Random], Iterator[Asked]]
"""Requests of one kind, without end."""


def _plain(_choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    yield from itertools.repeat(Asked({}))


def _structured(schema: Schema) -> Asked:
    named = {"name": "reply", "schema": schema}
    return Asked({"response_format": {"type": "json_schema", "json_schema": named}}, schema)


def _small_schema(_choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    yield from itertools.repeat(_structured(schemas.small()))


def _large_schema_warm(choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    yield from itertools.repeat(_structured(schemas.large(0, choice.count or 40)))


def _large_schema_cold(choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    for _ in itertools.count():
        yield _structured(schemas.large(choice.fresh.randrange(10**9), choice.count or 40))


def _schemas_zipf(choice: Choice, chance: random.Random) -> Iterator[Asked]:
    asked = [_structured(schema) for schema in schemas.some(choice.folder, choice.count or 200)]
    while True:
        for at in zipf(len(asked), _DRAWS, choice.zipf, chance.randrange(10**9)):
            yield asked[at]


def _tools(choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    tools = [
        {"type": "function", "function": {"name": f"call_{at}", "parameters": schema}}
        for at, schema in enumerate(_parameters(choice))
    ]
    yield from itertools.repeat(Asked({"tools": tools, "tool_choice": "required"}))


def _parameters(choice: Choice) -> list[Schema]:
    """Of each tool: short ones, for all of them stand in the prompt."""
    if choice.folder is not None:
        return schemas.some(choice.folder, choice.count or _TOOLS)
    return [schemas.one_word(f"arg_{at}") for at in range(choice.count or _TOOLS)]


def _top_logprobs(choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    yield from itertools.repeat(Asked({"logprobs": True, "top_logprobs": choice.count or 20}))


def _prompt_logprobs(choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    yield from itertools.repeat(Asked({"logprobs": choice.count or 20, "echo": True}, path=COMPLETIONS))


def _step_bomb(_choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    schema = {
        "type": "object",
        "properties": {"comment": {"type": "string", "pattern": _INNOCENT}},
        "required": ["comment"],
        "additionalProperties": False,
    }
    yield from itertools.repeat(_structured(schema))


def _compile_bomb(choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    for _ in itertools.count():
        yield _structured(schemas.open_object(choice.fresh.randrange(10**9), choice.count or 200))


def _regex_bomb(_choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    yield from itertools.repeat(Asked({"regex": _REGEX}))


def _ebnf_bomb(_choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    yield from itertools.repeat(Asked({"ebnf": _EBNF_WORDS}))


def _ebnf_growing(_choice: Choice, _chance: random.Random) -> Iterator[Asked]:
    yield from itertools.repeat(Asked({"ebnf": _EBNF_AMBIGUOUS}))


def _long_stops(choice: Choice, chance: random.Random) -> Iterator[Asked]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    while True:
        stops = ["".join(chance.choices(letters, k=choice.count or 256)) for _ in range(4)]
        yield Asked({"stop": stops})


KINDS: dict[str, Kind] = {
    "chat": _plain,
    "small_schema": _small_schema,
    "large_schema_warm": _large_schema_warm,
    "large_schema_cold": _large_schema_cold,
    "schemas": _schemas_zipf,
    "tools": _tools,
    "top_logprobs": _top_logprobs,
    "prompt_logprobs": _prompt_logprobs,
    "step_bomb": _step_bomb,
    "compile_bomb": _compile_bomb,
    "regex_bomb": _regex_bomb,
    "ebnf_bomb": _ebnf_bomb,
    "ebnf_growing": _ebnf_growing,
    "long_stops": _long_stops,
}
