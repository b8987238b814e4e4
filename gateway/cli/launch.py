"""`steplane replica launch`: an engine with its pool's flags. All of it stands in replica/launcher.py."""

from collections.abc import Sequence

from gateway.cli.failure import CliError


def run(pool: str, engine: str | None, arguments: Sequence[str], *, dry_run: bool) -> None:
    """Become the engine, or only say how."""
    from replica.launcher import ENGINES, LaunchError, launch

    if engine is not None and engine not in ENGINES:
        raise CliError(f"--engine {engine}: expected {' or '.join(ENGINES)}")
    try:
        launch(pool, engine, arguments, dry_run=dry_run)
    except LaunchError as error:
        raise CliError(str(error)) from error
