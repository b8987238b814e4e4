"""Reading one JSON value as the type a field wants, as loosely as the engines' own validation does.

SGLang and vLLM validate with pydantic in its lax mode: `"5"`, `5.0` and `true` are integers, `"yes"` is a boolean. A
value that no engine would take raises `MalformedError`, which `classify` turns into a refusal. Knows no field by name.
"""

from collections.abc import Collection

_TRUE = frozenset(("true", "t", "yes", "y", "on", "1"))
_FALSE = frozenset(("false", "f", "no", "n", "off", "0"))
MAX_NUMBER_CHARS = 64
"""Longer digit strings are no parameter of any engine, and `int()` is quadratic in them."""
MAX_ENTRIES = 40_000
"""Of a list or an object of numbers or texts. It is looked at as a whole, which takes about a millisecond."""
MAX_ODD_ENTRIES = 1_000
"""Of one that holds other spellings of them, too, and is looked at entry by entry."""
_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


class MalformedError(Exception):
    """A recognised field holds what no engine accepts. `param` is the field, `message` what it held and should hold."""

    def __init__(self, param: str, expected: str, value: object) -> None:
        super().__init__(param)
        self.param = param
        self.message = f"`{param}` must be {expected}, but is {describe(value)}."


def describe(value: object) -> str:
    """A short name of a JSON value for an error message; never the whole value, which may be huge or private."""
    if value is None:
        return "null"
    if isinstance(value, list | dict) and len(value) > MAX_ODD_ENTRIES:
        return f"{_NAMES[type(value)]} of {len(value):,} entries"
    if isinstance(value, bool | int | float):
        text = repr(value)
        return text if len(text) <= 40 else text[:40] + "…"
    return _NAMES.get(type(value), type(value).__name__)


def integer(value: object, param: str) -> int | None:
    """An integer, or None for null."""
    if value is None or type(value) is int:
        return value
    number: float
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        number = _number_of_text(value, param, "an integer")
    elif isinstance(value, float):
        number = value
    else:
        raise MalformedError(param, "an integer", value)
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        raise MalformedError(param, "an integer", value)
    return int(number)


def number(value: object, param: str) -> float | None:
    """A finite number, or None for null."""
    if value is None:
        return None
    if isinstance(value, str):
        return float(_number_of_text(value, param, "a number"))
    if isinstance(value, bool | int | float):
        return value
    raise MalformedError(param, "a number", value)


def boolean(value: object, param: str) -> bool:
    """A boolean; null is False."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        lowered = value.lower()
        if lowered in _TRUE:
            return True
        if lowered in _FALSE:
            return False
    raise MalformedError(param, "a boolean", value)


def text(value: object, param: str) -> str | None:
    """A string, or None for null."""
    if value is None or isinstance(value, str):
        return value
    raise MalformedError(param, "a string", value)


def texts(value: object, param: str) -> list[str]:
    """A string or a list of strings; nulls are dropped."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        kinds = kinds_of(value, param)
        if kinds <= {str}:
            return value
        for kind in kinds - {str, type(None)}:
            index = list(map(type, value)).index(kind)
            raise MalformedError(f"{param}[{index}]", "a string", value[index])
        return [item for item in value if item is not None]
    raise MalformedError(param, "a string or an array of strings", value)


def integers(value: object, param: str) -> list[int]:
    """An integer or a list of them; nulls are dropped."""
    if not isinstance(value, list):
        one = integer(value, param)
        return [] if one is None else [one]
    if kinds_of(value, param) <= {int}:
        return value
    few(value, param)
    found = [integer(item, f"{param}[{index}]") for index, item in enumerate(value)]
    return [item for item in found if item is not None]


def booleans(value: object, param: str) -> list[bool]:
    """A boolean or a list of them."""
    if not isinstance(value, list):
        return [boolean(value, param)]
    if kinds_of(value, param) <= {bool}:
        return value
    few(value, param)
    return [boolean(item, f"{param}[{index}]") for index, item in enumerate(value)]


def kinds_of(entries: Collection[object], param: str) -> set[type]:
    """The types of the entries of a list.

    Raises:
        MalformedError: more than `MAX_ENTRIES`.
    """
    if len(entries) > MAX_ENTRIES:
        raise MalformedError(param, f"of at most {MAX_ENTRIES:,} entries", entries)
    return set(map(type, entries))


def few(entries: list[object] | dict[str, object], param: str) -> None:
    """Raises `MalformedError` where there are too many entries to look at one by one."""
    if len(entries) > MAX_ODD_ENTRIES:
        raise MalformedError(param, f"all of one plain kind, beyond {MAX_ODD_ENTRIES:,} entries", entries)


def mapping(value: object, param: str) -> dict[str, object] | None:
    """An object, or None for null."""
    if value is None or isinstance(value, dict):
        return value
    raise MalformedError(param, "an object", value)


def items(value: object, param: str) -> list[object]:
    """An array; null is empty."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise MalformedError(param, "an array", value)


def _number_of_text(value: str, param: str, expected: str) -> float:
    if len(value) <= MAX_NUMBER_CHARS:
        try:
            return int(value)
        except ValueError:
            try:
                return float(value)
            except ValueError:
                pass
    raise MalformedError(param, expected, value)
