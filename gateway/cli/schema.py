"""`steplane schema`: the JSON Schema of the configuration."""

import json

import typer

from gateway.control.schema import config_schema


def run() -> None:
    """Print it."""
    typer.echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))
