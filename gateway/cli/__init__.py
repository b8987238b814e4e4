"""The command `steplane`: reads arguments, calls the part that does the work, prints the outcome.

Each command imports what it needs when it runs, so that `steplane --version` and `steplane explain` start quickly.
"""

import sys

from gateway.cli.failure import CliError


def main() -> None:
    """Entry point of the command `steplane`. Exit codes stand in failure.py."""
    from gateway.cli.commands import app

    try:
        app()
    except CliError as error:
        sys.stderr.write(f"steplane: {error}\n")
        sys.exit(error.exit_code)
