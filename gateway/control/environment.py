"""Variables in the values of the configuration: `${NAME}`, `${NAME:-default}`, and `$${` for a plain `${`.

Works on the text of one value after the YAML around it was understood, so what a variable holds can never become a
key, a list or a second value. Reads no environment of its own: the variables are passed in.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?")


class VariableError(ValueError):
    """A reference that can't be followed. `at`: where it begins in the text, counted from 0."""

    def __init__(self, at: int, expected: str, found: str, hint: str | None = None) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.at = at
        self.expected = expected
        self.found = found
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Expanded:
    """A text with its variables filled in. `names`: those it was made of, in the order of the text."""

    text: str
    names: tuple[str, ...]


def expand(text: str, variables: Mapping[str, str]) -> Expanded:
    """Fill in the variables of a text. A default stands in for a variable that is not set or empty.

    Raises:
        VariableError: a variable without a default is not set, or `${` begins no reference.
    """
    parts: list[str] = []
    names: list[str] = []
    end = 0
    for reference in _REFERENCE.finditer(text):
        parts.append(text[end : reference.start()])
        end = reference.end()
        name, default = reference[1], reference[2]
        if reference[0] == "$${":
            parts.append("${")
            continue
        if name is None:
            found = text[reference.start() :].split("}")[0] + "}"
            hint = "write $${ where ${ itself is meant"
            raise VariableError(reference.start(), "a variable such as ${NAME} or ${NAME:-default}", found, hint)
        value = variables.get(name)
        if default is not None:
            value = value or default
        elif value is None:
            hint = f"set it, or give a default: ${{{name}:-…}}"
            raise VariableError(reference.start(), f"the environment variable {name}", "none of that name", hint)
        names.append(name)
        parts.append(value)
    return Expanded("".join((*parts, text[end:])), tuple(names))
