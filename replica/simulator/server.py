"""One replica's life: build, listen, announce, serve until told to stop."""

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass

from aiohttp import web

from replica.attachment import Attachment, attach
from replica.feed.process import EngineName
from replica.settings import beside, read_settings
from replica.simulator import __version__
from replica.simulator.engine import Engine
from replica.simulator.frontend import FrontEnd
from replica.simulator.grammar import GrammarBackend
from replica.simulator.http.admin import Admin
from replica.simulator.http.app import create_app
from replica.simulator.metrics import Metrics
from replica.simulator.parent import watch_parent
from replica.simulator.settings import Settings
from replica.simulator.vocabulary import Vocabulary

# A stop aborts what runs, so handlers end within a step; this is only the longest that a dead client may delay it.
_SHUTDOWN_S = 0.3
# A step or a compile stuck in native code cannot be interrupted, so the process does not wait for it.
_LIMIT_S = 0.9


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to serve: an inherited listening socket, or an address (port 0: any)."""

    host: str = "127.0.0.1"
    port: int = 0
    fd: int | None = None

    def open(self) -> socket.socket:
        """Raises OSError."""
        if self.fd is not None:
            return socket.socket(fileno=self.fd)
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return socket.create_server((self.host, self.port), family=family, backlog=1024)


async def serve(
    settings: Settings, listen: Listen, vocabulary: Vocabulary, backend: GrammarBackend, *, parent: int | None
) -> None:
    """Serve until SIGTERM or SIGINT, or until the process `parent` is no longer the parent."""
    loop = asyncio.get_running_loop()
    metrics = Metrics(settings)
    frontend = FrontEnd(settings, vocabulary, metrics, loop)
    sock = listen.open()
    recording = _record(settings.feed, sock.getsockname()[1])
    engine = Engine(settings, vocabulary, backend, frontend.ship, recording.recorder)
    frontend.engine = engine
    metrics.attach(engine, settings)
    admin = Admin(frontend)
    # uvicorn, under SGLang, closes a connection after five idle seconds; clients that pool must know.
    runner = web.AppRunner(
        create_app(frontend, admin),
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=5.0,
        shutdown_timeout=_SHUTDOWN_S,
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if parent is not None:
        watch_parent(parent, stop.set, loop)
    await runner.setup()
    engine.start()
    try:
        await web.SockSite(runner, sock, backlog=1024).start()
        _announce(settings, sock)
        await stop.wait()
    finally:
        admin.stopping = True
        engine.abort("", everything=True)
        _end_within(_LIMIT_S)
        await runner.cleanup()
        engine.close(_SHUTDOWN_S)
        recording.close()


def _record(feed: str, port: int) -> Attachment:
    """Measure the engine as a real one is measured, `STEPLANE_*` variables included; `feed` as STEPLANE_FEED_LISTEN."""
    environment = os.environ | ({"STEPLANE_FEED_LISTEN": feed} if feed != "auto" else {})
    return attach(read_settings(environment, beside(port)), EngineName("steplane-simulator", __version__))


def _end_within(seconds: float) -> None:
    """End the process by then, whatever hangs."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _announce(settings: Settings, sock: socket.socket) -> None:
    """One line on stdout that says where the replica serves; whoever started it waits for that line."""
    host, port = sock.getsockname()[:2]
    line = {"event": "ready", "name": settings.name, "host": host, "port": port, "pid": os.getpid()}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
