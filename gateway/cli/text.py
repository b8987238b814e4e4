"""How commands show what others have chosen, durations and figures on a terminal. Knows no command."""

import orjson
import typer
from rich.markup import escape
from rich.table import Table


def shown(text: str) -> str:
    """Text that somebody else chose, for a terminal: neither markup nor control characters have an effect."""
    return escape("".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text))


def span(seconds: float) -> str:
    """A duration with its two largest units at most."""
    left = max(0, round(seconds))
    for unit_s, unit, smaller_s, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if left >= unit_s:
            rest = left % unit_s // smaller_s
            return f"{left // unit_s} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{left} s"


def millis(seconds: float | None) -> str:
    """A short time in as few characters as may be; "-" where there is none."""
    if seconds is None:
        return "-"
    ms = seconds * 1e3
    if ms >= 10_000:
        return f"{ms / 1e3:.0f}s"
    if ms >= 1000:
        return f"{ms / 1e3:.1f}s"
    return f"{ms:.0f}ms" if ms >= 10 else f"{ms:.1f}ms" if ms >= 0.1 or not ms else f"{ms * 1e3:.0f}us"


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table without lines; the `right` columns hold figures. Long text is folded, figures never are."""
    table = Table(box=None, pad_edge=False, collapse_padding=True, padding=(0, 2), header_style="bold")
    for column in columns:
        if column in right:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold")
    return table


def print_json(answer: object) -> None:
    """What the API answers, for people and programs."""
    typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
