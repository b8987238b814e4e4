"""A gateway between a replica beside it and one at the other end of a bad cable.

Run in a network namespace of its own (`unshare -n python -m tests.faults.island pulled`, or `lossy`):
nothing of the machine's network is touched. The far replica lives in a further one. Exit status 0: all went as it must.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import uvloop

from tests.integration.gateway.harness import (
    ANSWER,
    CHAT,
    EVENT,
    LAST,
    SSE_HEAD,
    Engine,
    House,
    house,
    request,
)
from tests.integration.wire.harness import Message, Served, read_message, until

from .cable import Cable, device

HERE, THERE, PORT = "10.77.0.1", "10.77.0.2", 8000
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
OPTIONS = {
    "retry": {"attempts": 3, "budget": {"ratio": 1, "min_per_s": 1000}},
    "health": {"interval_s": 0.2, "timeout_s": 0.3, "eject_after": 3},
}
TIMEOUTS = {"connect_s": 0.5, "first_byte_s": 1.0}
PATIENT = {"retry": OPTIONS["retry"], "health": {"interval_s": 600, "timeout_s": 20}}
NUMBERS = itertools.count()


class Far(Engine):
    """Served by another process."""

    @property
    def url(self) -> str:
        return f"http://{THERE}:{PORT}"

    async def start(self) -> None:
        """It runs."""

    async def stop(self) -> None:
        """It ends with the island."""


async def _serve() -> None:
    """The far replica: answers everything at once, and `/asked` with how often each number was asked."""
    asked: Counter[str] = Counter()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served = Served(reader, writer, [])
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                message = await read_message(reader)
                if message.start.startswith(b"GET /asked "):
                    told = json.dumps(asked).encode()
                    await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(told), told))
                    continue
                asked[(message.header(b"x-number") or b"").decode()] += 1
                streams = b'"stream": true' in message.body
                await served.send(SSE_HEAD + 3 * EVENT + LAST if streams else ANSWER)

    server = await asyncio.start_server(accepted, THERE, PORT)
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextlib.contextmanager
def joined() -> Iterator[Cable]:
    """The far replica, serving, and the cable to it."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    ours, theirs = socket.socketpair()
    words = [sys.executable, "-m", "tests.faults.island", "far", str(theirs.fileno())]
    far = subprocess.Popen(["unshare", "-n", *words], stdout=subprocess.PIPE, pass_fds=(theirs.fileno(),))
    assert far.stdout is not None
    try:
        with ours, theirs:
            _, (there,), _, _ = socket.recv_fds(ours, 1, 1)
        cable = Cable(device("here", HERE), there)
        cable.start()
        try:
            assert far.stdout.readline() == b"serving\n"
            yield cable
        finally:
            cable.stop()
    finally:
        far.kill()
        far.wait()
        far.stdout.close()


async def _one(running: House, body: object) -> tuple[str, Message]:
    number = str(next(NUMBERS))
    client = await running.client()
    answer = await client.ask(request(CHAT, body, f"x-number: {number}"))
    client.close()
    return number, answer


async def _load(running: House, count: int, body: object = BODY) -> Counter[tuple[int, bytes]]:
    """Asks so many times at once: how often which status came from which replica."""
    answers = await asyncio.gather(*(_one(running, body) for _ in range(count)))
    return Counter((answer.status, b"".join(answer.values(b"x-steplane-replica"))) for _, answer in answers)


async def _pulled(cable: Cable) -> None:
    """Nobody refuses, nobody resets, nobody answers: the replica is given up and taken back."""
    engines: list[Engine] = [Far("far"), Engine("near")]
    async with house({"all": engines}, options={"all": OPTIONS}, timeouts=TIMEOUTS, rules=[]) as running:
        before = await _load(running, 20)
        assert before.keys() == {(200, b"far"), (200, b"near")}, before

        cable.loss = 1.0
        during = await _load(running, 20)
        assert {status for status, _ in during} <= {200, 504}, during
        assert during[200, b"near"], during
        await until(lambda: not running.available("far"))
        without = await _load(running, 20)
        assert without == {(200, b"near"): 20}, without

        cable.loss = 0.0
        await until(lambda: running.available("far"))
        after = await _load(running, 20)
        assert after.keys() == {(200, b"far"), (200, b"near")}, after
        await until(lambda: running.in_flight == 0)


async def _lossy(cable: Cable) -> None:
    """One packet in a hundred is lost: TCP makes up for it, everything is answered, and nothing is asked twice."""
    engines: list[Engine] = [Far("far"), Engine("near")]
    async with house({"all": engines}, options={"all": PATIENT}, rules=[]) as running:
        cable.loss = 0.01
        for body in (BODY, {**BODY, "stream": True}):
            for _ in range(4):
                answers = await _load(running, 20, body)
                assert {status for status, _ in answers} == {200}, answers
        assert cable.lost
        cable.loss = 0.0
        await until(lambda: running.in_flight == 0)
        asked = await _asked()
        asked.pop("", None)  # looks at its health
        near = Counter((message.header(b"x-number") or b"").decode() for message in engines[1].asked)
        twice = {number: count for number, count in (asked + near).items() if count > 1}
        assert not twice, twice
        assert (asked + near).total() == 160


async def _asked() -> Counter[str]:
    """What the far replica was asked, by its own account."""
    reader, writer = await asyncio.open_connection(THERE, PORT)
    writer.write(b"GET /asked HTTP/1.1\r\nhost: far\r\n\r\n")
    answer = await read_message(reader, to=b"GET")
    writer.close()
    await writer.wait_closed()
    return Counter(json.loads(answer.body))


def main() -> int:
    """The island, or with the word `far` its other end."""
    match sys.argv[1:]:
        case ["far", descriptor]:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            with socket.socket(fileno=int(descriptor)) as parent:
                socket.send_fds(parent, [b"x"], [device("there", THERE)])
            uvloop.run(_serve())
        case ["pulled" | "lossy" as what]:
            with joined() as cable:
                uvloop.run({"pulled": _pulled, "lossy": _lossy}[what](cable))
        case _:
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
