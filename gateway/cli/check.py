"""`steplane check`: says whether a configuration can be used, and what it would do with requests of before."""

from collections.abc import Iterator
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.cli.failure import CliError
from gateway.cli.loading import load
from gateway.control.assembly import build_router
from gateway.control.replay import Move, Replay, replay
from gateway.control.traffic import Recorded, recorded

_SHOWN = 3
"""Signatures, and pairs of rules, of a move."""


def run(path: Path, against: Path | None = None) -> None:
    """Print a summary, warnings on stderr, and with `against` what would move. Raises CliError with all problems."""
    config = load(path)
    for warning in config.warnings:
        typer.echo(f"warning: {warning}", err=True)
    counts = (
        _counted(len(config.pools), "pool"),
        _counted(sum(len(pool.replicas) for pool in config.pools.values()), "replica"),
        _counted(len(config.rules), "rule"),
    )
    typer.echo(f"{path} is valid: {', '.join(counts)}")
    if against is not None:
        router = build_router(config, available=True)
        _show(replay(_decisions(against), router, config.tenants.pools_of), Console(highlight=False))


def _decisions(file: Path) -> Iterator[Recorded]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        yield recorded(line)
                    except ValueError as error:
                        raise CliError(f"{file}:{number}: {error}; expected what `record_decisions` writes") from None
    except OSError as error:
        raise CliError(f"{file} can't be read: {error.strerror}") from None


def _show(found: Replay, console: Console) -> None:
    if not found.requests:
        console.print("No decision is recorded there.")
        return
    share = _share(found.moved, found.requests)
    said = f"{_counted(found.moved, 'request')} of {found.requests} would go elsewhere ({share})"
    other = f"; {found.other_rule} to the same pool by another rule" if found.other_rule else ""
    console.print(f"{said}{other}.", soft_wrap=True)
    if not found.moves:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("from", "to", "requests", "share", "by rule", "signatures"):
        table.add_column(column, overflow="fold", justify="right" if column in ("requests", "share") else "left")
    for (before, after), move in sorted(found.moves.items(), key=lambda item: -item[1].requests):
        table.add_row(escape(before), escape(after), *_figures(move, found.requests))
    console.print(table)


def _figures(move: Move, requests: int) -> tuple[str, str, str, str]:
    rules = [f"{before} → {after}" for (before, after), _ in move.rules.most_common(_SHOWN)]
    signatures = [f"{signature} ({count})" for signature, count in move.signatures.most_common(_SHOWN)]
    return (
        str(move.requests),
        _share(move.requests, requests),
        escape("\n".join(rules)),
        escape("\n".join(signatures)),
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
