"""JSON schemas as applications have them, made up, and how often each is asked for: by Zipf's law."""

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

_VOCABULARY = (
    "account amount author body category city code color comment count country created currency customer date "
    "description duration email end event gender group height hour id image invoice item key kind language latitude "
    "length level line location message method model month name note number order owner page parent path phone place "
    "price product quantity rank rating reason region result role score section sender size source start state status "
    "street subject summary tag target team text time title topic total type unit url user value version vote weight "
    "width word year zip zone"
)
_WORDS = _VOCABULARY.split()


def schemas(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """So many different schemas."""
    chance = random.Random(seed)
    return [_object(chance, f"case_{at}", levels=2) for at in range(count)]


def zipf(count: int, draws: int, exponent: float, seed: int = 2) -> Iterator[int]:
    """So many draws of numbers below `count`: the first is the most frequent, the n-th n^exponent times rarer."""
    weights = list(accumulate(1.0 / (at + 1) ** exponent for at in range(count)))
    return iter(random.Random(seed).choices(range(count), cum_weights=weights, k=draws))


def _object(chance: random.Random, first: str, levels: int) -> dict[str, Any]:
    names = [first, *chance.sample(_WORDS, chance.randint(4, 14))]
    return {
        "type": "object",
        "properties": {name: _value(chance, levels) for name in names},
        "required": names[: max(1, len(names) // 2)],
        "additionalProperties": False,
    }


def _value(chance: random.Random, levels: int) -> dict[str, Any]:
    kinds = ["text", "enum", "number", "flag", "pattern", "list", "object"]
    match chance.choice(kinds if levels else kinds[:5]):
        case "enum":
            return {"enum": _some(chance, 3, 12)}
        case "number":
            return {"type": "integer", "minimum": 0, "maximum": chance.randint(10, 100_000)}
        case "flag":
            return {"type": "boolean"}
        case "pattern":
            return {"type": "string", "pattern": f"^[A-Z]{{{chance.randint(1, 4)}}}-[0-9]{{1,{chance.randint(2, 9)}}}$"}
        case "list":
            return {"type": "array", "items": _value(chance, levels - 1), "maxItems": chance.randint(1, 9)}
        case "object":
            return _object(chance, chance.choice(_WORDS), levels - 1)
        case _:
            return {"type": "string", "maxLength": chance.randint(8, 200)}


def _some(chance: random.Random, least: int, most: int) -> Sequence[str]:
    return chance.sample(_WORDS, chance.randint(least, most))
