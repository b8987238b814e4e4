"""A scripted step feed: says of an engine's steps what the test makes up, to all who listen (docs/replica.md)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Mapping
from typing import Any

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
_ALIVE_EVERY_S = 0.5


class Feed:
    """The feed of one engine.

    garbage: lines to say in place of all others. silent: accepts connections and says nothing.
    aborted: the ids that it was asked to end, and `shown` what it was shown with that.
    """

    def __init__(self) -> None:
        self.garbage = b""
        self.silent = False
        self.connections = 0
        self.aborted: list[str] = []
        self.shown: list[str] = []
        self._boots = itertools.count(1)
        self._boot = f"boot-{next(self._boots)}"
        self._seq = 0
        self._port = 0
        self._server: asyncio.Server | None = None
        self._readers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """From now on connections are refused."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in tuple(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def hang_up(self) -> None:
        """Close all connections; new ones are taken."""
        for writer in tuple(self._readers):
            writer.transport.abort()

    # --- what it says

    def steps(self, rid: str, *own_us: float, kind: str = "grammar_fill", worked: float = 1.0) -> None:
        """One step for each figure, in each of which the request took so long. `worked`: share that was CPU time."""
        for us in own_us:
            self.step({rid: {kind: us}}, worked=worked)

    def step(self, requests: Mapping[str, Mapping[str, float]], worked: float = 1.0) -> None:
        """One step, of several requests."""
        self._seq += 1
        hook_us = sum(us for kinds in requests.values() for us in kinds.values())
        times = {"step_us": hook_us + 4000.0, "hook_us": hook_us, "cpu_us": hook_us * worked}
        self._say("step", seq=self._seq, at=time.time(), requests=requests, **times)

    def rollup(self, rid: str, steps: int, each_us: float, kind: str = "grammar_fill") -> None:
        """So many steps added up."""
        self._seq += steps
        share = {"steps": steps, "sum_us": steps * each_us, "max_us": each_us, "kinds": {kind: steps * each_us}}
        self.sums(steps, 4000.0, each_us, {rid: share})

    def sums(self, steps: int, forward_us: float, hook_us: float, requests: Mapping[str, Any] | None = None) -> None:
        """A roll-up of steps that all took alike."""
        each_us = forward_us + hook_us
        self._say(
            "rollup",
            after=self._seq,
            at=time.time(),
            steps=steps,
            starved=0,
            step_us=steps * each_us,
            step_max_us=each_us,
            forward_us=steps * forward_us,
            hook_us=steps * hook_us,
            sequences=steps,
            requests=dict(requests or {}),
        )

    def compiled(self, rid: str, ms: float, error: str | None = None) -> None:
        self._seq += 1
        self._say("compile", seq=self._seq, rid=rid, ms=ms, error=error)

    def offence(self, rid: str, limit: str = "soft", us: float = 60_000.0, limit_us: float = 50_000.0) -> None:
        self._seq += 1
        what = {"limit": limit, "kind": "grammar_fill", "us": us, "limit_us": limit_us, "abort": limit != "soft"}
        self._say("offence", seq=self._seq, rid=rid, reason="step_budget_exceeded", **what)

    def end(self) -> None:
        """The engine is gone."""
        self._say("end", reason="engine_gone", next_seq=self._seq + 1)

    def reboot(self) -> None:
        """A new engine speaks; its readers have to connect anew."""
        self._boot = f"boot-{next(self._boots)}"
        self._seq = 0
        self.hang_up()

    # --- inside

    def _say(self, event: str, **fields: Any) -> None:
        if not self.silent:
            self._write(json.dumps({"event": event, **fields}).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        for writer in self._readers:
            if not writer.is_closing():
                writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def _abort(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
        self.aborted.append(json.loads(await reader.readexactly(int(fields["content-length"])))["rid"])
        self.shown.append(fields.get("authorization", ""))
        writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if head.startswith("POST /abort "):
                await self._abort(head, reader, writer)
                return
            writer.write(_HEAD)
            self._readers.add(writer)
            while True:
                if self.garbage:
                    self._write(self.garbage)
                elif not self.silent:
                    line = {"engine": "sglang", "version": "0", "boot": self._boot, "next_seq": self._seq + 1}
                    data = json.dumps({"event": "hello", **line}).encode() + b"\n"
                    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
                    break
                await asyncio.sleep(_ALIVE_EVERY_S / 10)
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ALIVE_EVERY_S):
                        await reader.read()
                        return
                self._say("alive", next_seq=self._seq + 1, step_runs_s=0.0)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._readers.discard(writer)
            self._serving.discard(task)
            writer.close()
