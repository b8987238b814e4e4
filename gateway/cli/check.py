"""`steplane check`: says whether a configuration can be used."""

from pathlib import Path

import typer

from gateway.cli.loading import load


def run(path: Path) -> None:
    """Print a summary, and warnings on stderr. Raises CliError with all problems."""
    config = load(path)
    for warning in config.warnings:
        typer.echo(f"warning: {warning}", err=True)
    counts = (
        _counted(len(config.pools), "pool"),
        _counted(sum(len(pool.replicas) for pool in config.pools.values()), "replica"),
        _counted(len(config.rules), "rule"),
    )
    typer.echo(f"{path} is valid: {', '.join(counts)}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
