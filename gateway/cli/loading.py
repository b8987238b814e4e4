"""A configuration file for a command: loaded, or the command ends with everything that is wrong."""

from pathlib import Path

from gateway.cli.failure import CliError
from gateway.control.config import Config, read_config
from gateway.control.document import Document
from gateway.control.problem import ConfigError


def load(path: Path) -> Config:
    """The checked configuration. Raises CliError."""
    return read(path)[1]


def read(path: Path) -> tuple[Document, Config]:
    """The same with the plain data that it was made of. Raises CliError."""
    try:
        return read_config(path)
    except ConfigError as error:
        count = len(error.problems)
        problems = "\n".join(f"  {problem}" for problem in error.problems)
        raise CliError(f"{path} has {count} {'problem' if count == 1 else 'problems'}:\n{problems}") from None
