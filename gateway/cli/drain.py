"""`steplane drain` and `undrain`: whether a running gateway sends requests to a replica."""

import typer

from gateway.cli.adminport import AdminPort, segment


def drain(admin: str, replica: str) -> None:
    """Send nothing new there. Raises CliError."""
    answer = AdminPort(admin).post(f"/api/v1/replicas/{segment(replica)}/drain", {})
    running = answer["in_flight"]
    requests = "1 request runs" if running == 1 else f"{running} requests run"
    typer.echo(f"{answer['name']} of pool {answer['pool']} gets nothing new; {requests} there.")


def undrain(admin: str, replica: str) -> None:
    """Send requests there again. Raises CliError."""
    answer = AdminPort(admin).post(f"/api/v1/replicas/{segment(replica)}/undrain", {})
    typer.echo(f"{answer['name']} of pool {answer['pool']} gets requests again.")
