"""`steplane worker`: one of the processes that `steplane serve --workers N` starts; nothing for people."""

import faulthandler
import signal
import socket

import uvloop

from gateway.cli.failure import CliError
from gateway.control.logs import configure_logs
from gateway.memory import settle_memory
from gateway.workers.worker import WorkerError, work


def run(channel: int) -> None:
    """Be a worker until the end. Raises CliError where it can't begin."""
    configure_logs()
    try:
        end = socket.socket(fileno=channel)
    except OSError:
        raise CliError("a worker is started by `steplane serve --workers N`, not by hand") from None
    faulthandler.enable()
    # Where each thread stands, to standard error, whatever they do: what the supervisor asks a worker that hangs.
    faulthandler.register(signal.SIGQUIT)
    try:
        uvloop.run(work(end, settle_memory))
    except (OSError, WorkerError) as error:
        raise CliError(f"worker: {error}") from None
