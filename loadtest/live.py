"""Progress of a run on a terminal: what has been asked and answered so far, class by class."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

from rich.console import Console
from rich.live import Live
from rich.table import Table

from loadtest.run import Current

_EVERY_S = 0.5


@contextlib.asynccontextmanager
async def progress(console: Console) -> AsyncIterator[Callable[[Current], None]]:
    """Gives what is to be called when a slice begins. Where nobody watches, a line is printed for each instead."""
    if not console.is_terminal:
        yield lambda current: console.print(_title(current), highlight=False)
        return
    shown: list[Current] = []
    with Live(console=console, auto_refresh=False, transient=True) as live:

        async def refresh() -> None:
            while True:
                if shown:
                    live.update(_table(shown[-1]), refresh=True)
                await asyncio.sleep(_EVERY_S)

        task = asyncio.create_task(refresh())
        try:
            yield shown.append
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _title(current: Current) -> str:
    return f"{current.number}/{current.of}  {current.target}, {current.phase}, round {current.round + 1}"


def _table(current: Current) -> Table:
    passed_s = time.monotonic() - current.began
    title = f"{_title(current)}   {min(passed_s, current.lasts_s):.0f} of {current.lasts_s:.0f} s"
    table = Table(title=title, title_justify="left")
    for heading in ("class", "asked", "running", "answered", "failed", "tokens"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    asked, ended, failed, tokens = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for outcome in current.loop.outcomes:
        name = outcome.planned.kind
        asked[name] += 1
        ended[name] += outcome.ended is not None
        failed[name] += bool(outcome.error)
        tokens[name] += outcome.tokens
    for name in sorted(asked):
        row = (asked[name], asked[name] - ended[name], ended[name] - failed[name], failed[name], tokens[name])
        table.add_row(name, *map(str, row))
    return table
