"""A gateway between a replica beside it and one at the other end of a cable that is pulled out.

Run in a network namespace of its own (`unshare -n python -m tests.integration.faults.island`): nothing of the machine's
network is touched. The far replica lives in a further one, joined by a pair of virtual interfaces; with its end
down, what is sent is neither answered nor refused. Exit status 0: all went as it must.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import uvloop

from tests.integration.gateway.harness import ANSWER, CHAT, Engine, House, house, request
from tests.integration.wire.harness import Message, Served, read_message, until

HERE, THERE, PORT = "10.77.0.1", "10.77.0.2", 8000
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
OPTIONS = {
    "retry": {"attempts": 3, "budget": {"ratio": 1, "min_per_s": 1000}},
    "health": {"interval_s": 0.2, "timeout_s": 0.3, "eject_after": 3},
}
TIMEOUTS = {"connect_s": 0.5, "first_byte_s": 1.0}


def ip(*words: str, inside: int | None = None) -> None:
    """Runs ip(8), `inside` the network namespace of a process."""
    entered = ["nsenter", "-t", str(inside), "-n"] if inside is not None else []
    subprocess.run([*entered, "ip", *words], check=True)


class Far(Engine):
    """Served by another process, which has counted nothing that did not arrive."""

    @property
    def url(self) -> str:
        return f"http://{THERE}:{PORT}"

    async def start(self) -> None:
        """It runs."""

    async def stop(self) -> None:
        """It ends with the island."""


async def _serve() -> None:
    """The far replica: answers everything at once."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served = Served(reader, writer, [])
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await read_message(reader)
                await served.send(ANSWER)

    server = await asyncio.start_server(accepted, THERE, PORT)
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextlib.contextmanager
def cable() -> Iterator[int]:
    """The process of the far replica, ready and joined to us."""
    ip("link", "set", "lo", "up")
    words = [sys.executable, "-m", "tests.integration.faults.island", "far"]
    far = subprocess.Popen(["unshare", "-n", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert far.stdin is not None
    assert far.stdout is not None
    try:
        assert far.stdout.readline() == b"unshared\n"
        ip("link", "add", "here", "type", "veth", "peer", "name", "there")
        ip("link", "set", "there", "netns", str(far.pid))
        ip("addr", "add", f"{HERE}/30", "dev", "here")
        ip("link", "set", "here", "up")
        ip("addr", "add", f"{THERE}/30", "dev", "there", inside=far.pid)
        ip("link", "set", "there", "up", inside=far.pid)
        far.stdin.write(b"joined\n")
        far.stdin.flush()
        assert far.stdout.readline() == b"serving\n"
        yield far.pid
    finally:
        far.kill()
        far.wait()
        far.stdin.close()
        far.stdout.close()


async def _load(running: House, count: int) -> Counter[tuple[int, bytes]]:
    """Asks so many times at once: how often which status came from which replica."""

    async def one() -> tuple[int, bytes]:
        client = await running.client()
        answer: Message = await client.ask(request(CHAT, BODY))
        client.close()
        return answer.status, b"".join(answer.values(b"x-steplane-replica"))

    return Counter(await asyncio.gather(*(one() for _ in range(count))))


async def _pull_out(far: int) -> None:
    engines: list[Engine] = [Far("far"), Engine("near")]
    async with house({"all": engines}, options={"all": OPTIONS}, timeouts=TIMEOUTS, rules=[]) as running:
        before = await _load(running, 20)
        assert before.keys() == {(200, b"far"), (200, b"near")}, before

        ip("link", "set", "there", "down", inside=far)
        during = await _load(running, 20)
        assert {status for status, _ in during} <= {200, 504}, during
        assert during[200, b"near"], during
        await until(lambda: not running.available("far"))
        without = await _load(running, 20)
        assert without == {(200, b"near"): 20}, without

        ip("link", "set", "there", "up", inside=far)
        await until(lambda: running.available("far"))
        after = await _load(running, 20)
        assert after.keys() == {(200, b"far"), (200, b"near")}, after
        await until(lambda: running.in_flight == 0)


def main() -> int:
    """The island, or with the word `far` its other end."""
    if sys.argv[1:] == ["far"]:
        sys.stdout.write("unshared\n")
        sys.stdout.flush()
        sys.stdin.readline()
        uvloop.run(_serve())
        return 0
    with cable() as far:
        uvloop.run(_pull_out(far))
    return 0


if __name__ == "__main__":
    sys.exit(main())
