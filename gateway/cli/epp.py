"""`steplane epp`: the gateway as Envoy's endpoint picker: it says where requests go, and Envoy carries them."""

import asyncio
import faulthandler
import signal
import sys
from pathlib import Path

import structlog
import typer
import uvloop

from gateway.cli.failure import CliError
from gateway.cli.loading import load
from gateway.cli.notify import alive_to_watchdog, notify_ready, notify_stopping
from gateway.cli.run import Stop, running
from gateway.control.config import Config
from gateway.control.logs import configure_logs
from gateway.control.network import Address

try:
    from gateway.epp.fit import UnfitError, left_out
    from gateway.epp.service import EndpointPicker
except ModuleNotFoundError as _error:
    raise CliError(
        f"`steplane epp` needs {_error.name}, which is not installed: pip install 'steplane[epp]'", exit_code=2
    ) from None

_HINT = "stop what listens there, or change `epp.listen` or `admin.listen` in the configuration"

_log = structlog.get_logger("steplane")


def run(path: Path) -> None:
    """Answer Envoy until a signal. Raises CliError when the configuration is wrong, or a port is taken."""
    config = load(path)
    configure_logs(config.logs)
    faulthandler.enable()  # where it stood when systemd's watchdog, or a fault in C, ended it
    for warning in config.warnings:
        _log.warning("configuration", problem=str(warning))
    for unfit in left_out(config):
        _log.warning("not_with_envoy", problem=unfit)
    sys.exit(uvloop.run(_serve(config)))


async def _serve(config: Config) -> int:
    loop = asyncio.get_running_loop()
    with Stop() as stop, alive_to_watchdog():
        try:
            async with running(config, stop, _HINT, EndpointPicker()) as gateway:
                loop.add_signal_handler(signal.SIGHUP, gateway.reloading.request, "signal")
                admin, envoy = Address(*gateway.admin_address), Address(*gateway.data_address)
                replicas = sum(len(pool.replicas) for pool in config.pools.values())
                typer.echo(f"Steplane answers Envoy on {envoy}, admin on http://{admin}; {replicas} replicas.")
                notify_ready()
                await stop.requested.wait()
                notify_stopping()
                _log.info("draining", seconds=config.timeouts.drain_s)
        except UnfitError as error:
            raise CliError(str(error)) from None
        return stop.exit_code
