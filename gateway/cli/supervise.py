"""`steplane serve` with several workers: a supervisor in this process, and what the signals ask of it.

SIGTERM or SIGINT: all end in good order; once more: at once. SIGHUP: the workers read the configuration again. SIGUSR2:
new workers take over.
"""

import asyncio
import signal

import structlog
import typer

from gateway.cli.failure import CliError
from gateway.cli.notify import alive_to_watchdog, notify_ready, notify_reloading, notify_stopping
from gateway.cli.run import Stop, unless
from gateway.control.network import Address
from gateway.workers.front import Front
from gateway.workers.supervisor import Loaded, NotRenewedError, NotStartedError, Supervisor

_log = structlog.get_logger("steplane")


async def supervise(loaded: Loaded, workers: int | None, hint: str) -> int:
    """Serve until a signal; the exit code. Raises CliError, with `hint` when a port can't be had."""
    asked: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGHUP, signal.SIGUSR2):
        asyncio.get_running_loop().add_signal_handler(number, asked.put_nowait, number)
    with Stop() as stop, alive_to_watchdog():
        supervisor = Supervisor(loaded, workers)
        front = Front(supervisor, stop.requested.set)
        try:
            await front.start()
            if await unless(stop.requested, supervisor.start()):
                _welcome(supervisor, front)
                notify_ready()
                await unless(stop.requested, _obey(supervisor, asked))
            notify_stopping()
            _log.info("draining", seconds=supervisor.loaded.config.timeouts.drain_s)
            await unless(stop.at_once, supervisor.drain())
        except OSError as error:
            raise CliError(f"can't listen: {error.strerror or error}; {hint}") from None
        except NotStartedError as error:
            raise CliError(str(error)) from None
        finally:
            await supervisor.close()
            await front.close()
        return stop.exit_code


async def _obey(supervisor: Supervisor, asked: "asyncio.Queue[signal.Signals]") -> None:
    while True:
        number = await asked.get()
        notify_reloading()
        try:
            if number == signal.SIGHUP:
                await supervisor.reload()
            else:
                await supervisor.renew()
        except NotRenewedError as error:
            _log.error("workers go on as they were", signal=number.name, why=str(error))
        notify_ready()


def _welcome(supervisor: Supervisor, front: Front) -> None:
    config = supervisor.loaded.config
    replicas = sum(len(pool.replicas) for pool in config.pools.values())
    typer.echo(
        f"Steplane listens on {', '.join(supervisor.places)}, admin on http://{Address(*front.address)}; "
        f"{replicas} replicas, {supervisor.loaded.count} workers."
    )
