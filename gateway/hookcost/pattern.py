"""What one `pattern` of a schema comes to on a backend: its quantities, or why it can't be used.

Owns the names of what can be wrong with a grammar for every backend; each backend brings its own quantities.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.hookcost.regex import MAX_WORK, Regex, RegexBoundError, RegexError, read_regex

MALFORMED = "malformed_schema"
CONTRADICTION = "contradictory_bounds"
MALFORMED_GRAMMAR = "malformed_grammar"
UNCOMPILABLE = "uncompilable_regex"
LOOKAROUND = "lookaround"
TOO_MANY_VALUES = "too_many_enum_values"
FAULTS = (MALFORMED, MALFORMED_GRAMMAR, CONTRADICTION, UNCOMPILABLE, LOOKAROUND, TOO_MANY_VALUES)
"""What can be wrong with a grammar whatever backend reads it."""


@dataclass(frozen=True, slots=True)
class PatternBill:
    """quantities: by mechanism. refused: why the backend does not compile it. fault, message: what is wrong with it for
    every backend. heavy: the bound of the analysis that it exceeds. work: steps that reading it took, about."""

    quantities: tuple[tuple[str, float], ...] = ()
    refused: str | None = None
    fault: str | None = None
    message: str = ""
    heavy: str | None = None
    work: int = MAX_WORK


def read_pattern(
    source: str, quantities: Callable[[Regex], list[tuple[str, float]]], refuses: Callable[[Regex], str | None]
) -> PatternBill:
    """The bill of a pattern.

    refuses: why the backend does not take such a regex, as the end of a sentence, or None where it does.
    """
    shown = source if len(source) <= 60 else source[:60] + "..."
    try:
        regex = read_regex(source)
    except RegexBoundError as error:
        return PatternBill(heavy=str(error))
    except RegexError as error:
        message = f"pattern `{shown}`: {error} (character {error.position + 1})"
        return PatternBill(refused=message, fault=UNCOMPILABLE, message=message, work=min(len(source), MAX_WORK))
    reason = refuses(regex)
    odd = regex.lookaround or regex.backreference
    return PatternBill(
        quantities=() if reason else tuple(quantities(regex)),
        refused=f"pattern `{shown}` {reason}" if reason else None,
        fault=LOOKAROUND if odd else None,
        message=f"pattern `{shown}` has a lookaround or a backreference" if odd else "",
        work=regex.work,
    )
