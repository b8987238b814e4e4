"""`steplane drain` and `undrain`: whether a running gateway sends requests to a replica."""

import typer

from gateway.cli.adminport import AdminPort, segment
from gateway.cli.text import print_json


def drain(admin: str, replica: str, *, as_json: bool) -> None:
    """Send nothing new there. Raises CliError."""
    answer = AdminPort(admin).post(f"/api/v1/replicas/{segment(replica)}/drain", b"")
    if as_json:
        print_json(answer)
        return
    running = answer["in_flight"]
    requests = "1 request runs" if running == 1 else f"{running} requests run"
    typer.echo(f"{answer['name']} of pool {answer['pool']} gets nothing new; {requests} there.")


def undrain(admin: str, replica: str, *, as_json: bool) -> None:
    """Send requests there again. Raises CliError."""
    answer = AdminPort(admin).post(f"/api/v1/replicas/{segment(replica)}/undrain", b"")
    if as_json:
        print_json(answer)
        return
    typer.echo(f"{answer['name']} of pool {answer['pool']} gets requests again.")
