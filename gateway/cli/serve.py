"""`steplane serve`: the gateway in front of replicas that run already."""

import sys
from pathlib import Path

import structlog
import typer
import uvloop

from gateway.cli.loading import load
from gateway.cli.run import Stop, running
from gateway.control.config import Config
from gateway.control.logs import configure_logs
from gateway.control.network import Address

_log = structlog.get_logger("steplane")


def run(path: Path) -> None:
    """Serve until a signal. Raises CliError when the configuration is wrong or a port is taken."""
    config = load(path)
    configure_logs()
    for warning in config.warnings:
        _log.warning("configuration", problem=str(warning))
    sys.exit(uvloop.run(_serve(config)))


async def _serve(config: Config) -> int:
    hint = "stop what listens there, or change `listen` or `admin.listen` in the configuration"
    with Stop() as stop:
        async with running(config, stop, hint) as gateway:
            data, admin = Address(*gateway.data_address), Address(*gateway.admin_address)
            replicas = sum(len(pool.replicas) for pool in config.pools.values())
            typer.echo(f"Steplane listens on http://{data}, admin on http://{admin}; {replicas} replicas.")
            await stop.requested.wait()
            _log.info("draining", seconds=config.timeouts.drain_s)
        return stop.exit_code
