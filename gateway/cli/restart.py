"""`steplane restart`: new workers in place of the old ones of a running gateway."""

import typer

from gateway.cli.adminport import AdminPort


def run(admin: str) -> None:
    """Return when the new workers have the clients. Raises CliError where they could not be had."""
    answer = AdminPort(admin, timeout_s=_RENEWED_WITHIN_S).post("/api/v1/restart", {})
    typer.echo(f"{answer['workers']} new workers serve, generation {answer['generation']}.")


_RENEWED_WITHIN_S = 150.0
"""Longer than a supervisor waits for its workers."""
