"""`steplane replica launch`: an engine with its pool's flags.

All of it stands in replica/launcher.py, which this process becomes: the gateway knows nothing of what runs beside an
engine.
"""

import os
import sys
from collections.abc import Sequence

from gateway.cli.failure import CliError


def run(pool: str, engine: str | None, arguments: Sequence[str], *, dry_run: bool) -> None:
    """Become the launcher, which becomes the engine. Raises CliError where this Python can't be started again."""
    command = [sys.executable, "-m", "replica.launcher", f"--pool={pool}"]
    command += [f"--engine={engine}"] if engine is not None else []
    command += ["--dry-run"] if dry_run else []
    sys.stdout.flush()
    try:
        os.execv(command[0], [*command, "--", *arguments])  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise CliError(f"{command[0]} can't be started: {error.strerror or error}") from None
