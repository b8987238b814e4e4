"""Admin ports for commands to ask, each on a thread of its own: real ones, and one that answers as it is told."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer

from structlog.testing import capture_logs

from tests.unit.control.admins import CONFIG, Admin, running_admin


@dataclass
class Running:
    """An admin port, and the loop on which everything of it must be done."""

    admin: Admin
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return str(self.admin.client.base_url)

    def do(self, act: Callable[[Admin], object]) -> None:
        async def acted() -> None:
            act(self.admin)

        asyncio.run_coroutine_threadsafe(acted(), self.loop).result(timeout=30)


@contextlib.contextmanager
def real_port(config: str = CONFIG) -> Iterator[Running]:
    begun, ended = threading.Event(), asyncio.Event()
    found: list[Running] = []

    async def serve() -> None:
        async with running_admin(config) as admin:
            found.append(Running(admin, asyncio.get_running_loop()))
            begun.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    with capture_logs():  # they would stand among what the command prints
        thread.start()
        assert begun.wait(timeout=30)
        try:
            yield found[0]
        finally:
            found[0].loop.call_soon_threadsafe(ended.set)
            thread.join()


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[str, list[Message]]]:
    """`host:port` of what answers everything so, and the headers that it was asked with."""
    asked: list[Message] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not to stderr."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
