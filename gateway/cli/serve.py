"""`steplane serve`: the gateway in front of replicas that run already, in this process or in several."""

import asyncio
import faulthandler
import signal
import sys
from pathlib import Path
from typing import Literal

import structlog
import typer
import uvloop

from gateway.cli.failure import CliError
from gateway.cli.loading import read
from gateway.cli.notify import alive_to_watchdog, notify_ready, notify_stopping
from gateway.cli.openfiles import allow_open_files
from gateway.cli.run import Stop, running
from gateway.control.config import Config
from gateway.control.logs import configure_logs
from gateway.control.network import Address
from gateway.control.workersconfig import MOST_WORKERS, worker_count

_HINT = "stop what listens there, or change `listen` or `admin.listen` in the configuration"

_log = structlog.get_logger("steplane")


def run(path: Path, workers: str | None) -> None:
    """Serve until a signal; `workers`, a number or `auto`, in place of the configuration's.

    Raises CliError when that or the configuration is wrong, or a port is taken.
    """
    wanted = None if workers is None else worker_count(_read_workers(workers))
    document, config = read(path)
    configure_logs(config.logs)
    faulthandler.enable()  # where it stood when systemd's watchdog, or a fault in C, ended it
    allow_open_files()
    for warning in config.warnings:
        _log.warning("configuration", problem=str(warning))
    count = wanted or worker_count(config.workers)
    if count == 1:
        del document  # which may be large, and is for workers alone
        sys.exit(uvloop.run(_serve(config)))
    from gateway.cli.supervise import supervise
    from gateway.workers.supervisor import Loaded

    sys.exit(uvloop.run(supervise(Loaded(path, document, config, count), wanted, _HINT)))


def _read_workers(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_WORKERS:
        return int(text)
    raise CliError(f"--workers {text}: expected a whole number from 1 to {MOST_WORKERS}, or auto", exit_code=2)


async def _serve(config: Config) -> int:
    loop = asyncio.get_running_loop()
    # By default it would end us: who sends it to a gateway of several workers may send it to this one, too.
    loop.add_signal_handler(signal.SIGUSR2, _log.warning, "only several workers can be renewed")
    with Stop() as stop, alive_to_watchdog():
        async with running(config, stop, _HINT) as gateway:
            loop.add_signal_handler(signal.SIGHUP, gateway.reloading.request, "signal")
            admin = Address(*gateway.admin_address)
            replicas = sum(len(pool.replicas) for pool in config.pools.values())
            places = ", ".join(_places(config, gateway.data_address))
            typer.echo(f"Steplane listens on {places}, admin on http://{admin}; {replicas} replicas.")
            notify_ready()
            await stop.requested.wait()
            notify_stopping()
            _log.info("draining", seconds=config.timeouts.drain_s)
        return stop.exit_code


def _places(config: Config, first: tuple[str, int]) -> list[str]:
    """Where clients connect; the first with the port that it really has."""
    places = list(config.listen)
    if isinstance(places[0].address, Address):
        places[0] = places[0].model_copy(update={"address": Address(places[0].address.host, first[1])})
    return [place.url for place in places]
