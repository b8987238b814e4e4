"""`steplane loadtest`: starts `loadtest/`, which knows nothing of the gateway, and says how it ended."""

from pathlib import Path

import typer

from gateway.cli.failure import CliError
from loadtest import command


def run(scenario: Path, targets: list[str], feeds: list[str], admins: list[str], out: Path, key: str) -> None:
    """Run a scenario and print its summary. Raises CliError."""
    try:
        summary = command.run(scenario, targets, feeds, admins, out, key)
    except command.LoadtestError as error:
        raise CliError(str(error)) from None
    except KeyboardInterrupt:
        raise CliError(f"interrupted; the same command goes on with what {out} has") from None
    typer.echo(summary)
    typer.echo(f"Results: {out}. A page with plots: steplane loadtest report {out}")


def report(results: Path, html: Path, summary: Path | None) -> None:
    """Write a page, and a summary where one is wanted. Raises CliError."""
    try:
        command.report(results, html, summary)
    except command.LoadtestError as error:
        raise CliError(str(error)) from None
    typer.echo(f"{html} is written.")


def compare(before: Path, after: Path) -> None:
    """Print two runs side by side. Raises CliError."""
    try:
        typer.echo(command.comparison(before, after))
    except command.LoadtestError as error:
        raise CliError(str(error)) from None
