"""`steplane key`: makes API keys, and the digests that the configuration knows them by."""

import sys

import typer

from gateway.cli.failure import CliError
from gateway.tenants.keys import bare, digest, new_key


def new() -> None:
    """Print a new key and its digest."""
    key = new_key()
    typer.echo(f"key     {key}\ndigest  {digest(key.encode())}")


def show_digest() -> None:
    """Print the digest of the key on stdin. Raises CliError without one."""
    key = bare(sys.stdin.buffer.readline().strip())
    if not key:
        raise CliError("no key on stdin; expected one line, as from: printenv API_KEY | steplane key hash")
    typer.echo(digest(key))
