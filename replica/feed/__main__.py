"""The feed process. Started by an engine (replica/feed/process.py), never by hand: it needs the engine's memory.

It outlives its engine for a few seconds, so that readers get the last records and hear that it is gone.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from dataclasses import dataclass

from aiohttp import web

from replica.feed.app import Engine, Feed

_LINGER_S = 5.0
_BIND_AGAIN_S = 1.0
# The engine's threads come first.
_NICENESS = 5


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the engine passes."""

    ring_fd: int
    host: str
    port: int
    token: str
    engine: Engine


def parse(argv: list[str] | None) -> Arguments:
    """Read the command line; the token comes by environment so that no process list shows it."""
    parser = argparse.ArgumentParser(prog="python -m replica.feed", description=(__doc__ or "").splitlines()[0])
    for name in ("--ring-fd", "--link-fd", "--pid", "--port", "--rank"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--host", "--engine", "--version"):
        parser.add_argument(name, required=True)
    given = parser.parse_args(argv)
    link = socket.socket(fileno=given.link_fd)
    link.setblocking(False)
    return Arguments(
        ring_fd=given.ring_fd,
        host=given.host,
        port=given.port,
        token=os.environ.pop("STEPLANE_FEED_TOKEN", ""),
        engine=Engine(given.engine, given.version, given.rank, given.pid, link),
    )


async def serve(arguments: Arguments) -> None:
    """Serve until the engine has been gone for a while, or SIGTERM."""
    feed = Feed(arguments.ring_fd, arguments.engine, arguments.token)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    runner = web.AppRunner(feed.app(), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    link = arguments.engine.link

    def link_closed() -> None:
        # The engine never sends on it: readable means closed.
        loop.remove_reader(link)
        feed.engine_gone.set()

    loop.add_reader(link, link_closed)
    summarising = asyncio.create_task(feed.summarise())
    try:
        await _bind(runner, arguments, feed.engine_gone)
        stopped, gone = (asyncio.create_task(event.wait()) for event in (stopping, feed.engine_gone))
        await asyncio.wait({gone, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({stopped}, timeout=_LINGER_S)
        gone.cancel()
        stopped.cancel()
    finally:
        summarising.cancel()
        await runner.cleanup()


async def _bind(runner: web.AppRunner, arguments: Arguments, engine_gone: asyncio.Event) -> None:
    """Listen, and keep trying while the address is taken, maybe by the feed of an engine that just ended."""
    told = False
    while not engine_gone.is_set():
        site = web.TCPSite(runner, arguments.host, arguments.port)
        try:
            await site.start()
        except OSError as error:
            if not told:
                where = f"{arguments.host}:{arguments.port}"
                _say(
                    f"the step feed cannot listen on {where} ({error.strerror or error}); trying on. "
                    "STEPLANE_FEED_LISTEN=HOST:PORT sets another address"
                )
                told = True
            await asyncio.sleep(_BIND_AGAIN_S)
        else:
            host, port = runner.addresses[0][:2]
            _say(f"step feed on http://{host}:{port}")
            return


def _say(text: str) -> None:
    """A line for the engine's log, which is this process's stderr. A log that is full is no reason to end."""
    with contextlib.suppress(OSError):
        print(f"steplane: {text}", file=sys.stderr, flush=True)  # noqa: T201


def main() -> None:
    """Run until there is no engine any more."""
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    arguments = parse(None)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()
