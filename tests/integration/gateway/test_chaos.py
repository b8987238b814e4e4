"""Engines that do whatever an engine can do, clients that leave whenever they like, and all means against it at once.

Nothing is left over afterwards, no answer is mixed up, and no request is sent more often than it may be.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections import Counter
from typing import Any

import pytest

from .harness import CHAT, LAST, PLAIN, SSE_HEAD, Engine, House, Message, Served, chunk, error_of, house, request, until

REQUESTS = 200
CLIENTS = 30
ATTEMPTS = 3
POOL: dict[str, Any] = {
    "retry": {
        "attempts": ATTEMPTS,
        "on": ["connect", "stale", "reset", "http_429", "http_500", "http_503"],
        "back_off": {"first_s": 0.002, "max_s": 0.01},
        "budget": {"ratio": 1, "min_per_s": 100},
        "max_retry_after_s": 0.02,
    },
    "hedge": {"after_s": 0.01, "max_share": 1},
    "deadline_s": 3,
    "admission": {"max_in_flight": 15, "max_wait_s": 10},
    "ejection": {"consecutive_faults": 0, "error_rate": 0},  # an opinion of the replicas would only make it quieter
}
ENDS = {"upstream_closed_early", "upstream_stale", "upstream_died", "upstream_bad_response", "deadline_exceeded"}


def said(request_id: bytes, streamed: bool) -> bytes:
    """The answer to a request, which is nobody else's."""
    if not streamed:
        return b'{"for":"%b"}' % request_id
    return b"".join(b'data: {"for":"%b","n":%d}\n\n' % (request_id, number) for number in range(5))


def response(message: Message) -> bytes:
    request_id, streamed = message.header(b"x-request-id") or b"", bool(json.loads(message.body).get("stream"))
    body = said(request_id, streamed)
    if not streamed:
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    events = [chunk(event + b"\n\n") for event in body.split(b"\n\n")[:-1]]
    return b"".join([SSE_HEAD, *events, LAST])


class Chaos:
    """Answers, in pieces and late, or in part, or not at all, as chance has it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    async def __call__(self, served: Served, message: Message) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random() * 0.03)
        what = rng.random()
        if what < 0.15:
            self.reset(served)
            return
        if what < 0.3:
            lines = rng.choice(["", "retry-after: 1\r\n"])
            status = rng.choice([429, 500, 503])
            await served.send(f"HTTP/1.1 {status} No\r\n{lines}content-length: 2\r\n\r\nno".encode())
            return
        data = response(message)
        cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(4)))
        pieces = [data[start:end] for start, end in itertools.pairwise([0, *cuts, len(data)])]
        whole = rng.random() < 0.9
        for piece in pieces if whole else pieces[:-1]:
            await served.send(piece)
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.01)
        if not whole and rng.random() < 0.95:
            self.reset(served)

    @staticmethod
    def reset(served: Served) -> None:
        if not served.writer.is_closing():
            with contextlib.suppress(ValueError):  # it was closed just now
                served.reset()


class Visitor:
    """Asks one thing after the other, and leaves in the middle of some. `answered`: how often with what."""

    def __init__(self, running: House, rng: random.Random, answered: Counter[str]) -> None:
        self.running = running
        self.rng = rng
        self.answered = answered

    async def ask(self, request_ids: list[bytes]) -> None:
        client = await self.running.client()
        for request_id in request_ids:
            streamed = self.rng.random() < 0.5
            line = f"x-request-id: {request_id.decode()}"
            await client.send(request(CHAT, {**PLAIN[CHAT], "stream": streamed}, line))
            stays = self.rng.random() < 0.85
            try:
                async with asyncio.timeout(None if stays else self.rng.random() * 0.03):
                    answer = await client.response()
            except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                # It has left; or the answer was cut where nothing could be said any more.
                client.close()
                client = await self.running.client()
                self.answered["cut" if stays else "left"] += 1
                continue
            self.check(request_id, streamed, answer)
            if answer.values(b"connection") == [b"close"]:
                client.close()
                client = await self.running.client()
        client.close()

    def check(self, request_id: bytes, streamed: bool, answer: Message) -> None:
        assert answer.values(b"x-request-id") == [request_id]
        if answer.status == 200:
            whole = said(request_id, streamed)
            if answer.body != whole:
                assert streamed
                events, _, error = answer.body.partition(b'data: {"error"')
                assert whole.startswith(events)
                assert any(code.encode() in error for code in ENDS)
            self.answered["ended" if answer.body != whole else "whole"] += 1
        elif answer.body == b"no":
            assert answer.status in (429, 500, 503)
            self.answered["passed on"] += 1
        else:
            assert error_of(answer)["code"] in ENDS | {"replicas_busy", "queue_timeout"}
            self.answered["given up"] += 1


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_left_over_mixed_up_or_sent_too_often(seed: int) -> None:
    rng = random.Random(seed)
    engines = [Engine(name, Chaos(rng)) for name in "abc"]
    answered: Counter[str] = Counter()
    async with house({"interactive": engines}, options={"interactive": POOL}) as running:
        ids = [b"r-%d-%d" % (seed, number) for number in range(REQUESTS)]
        visitors = [Visitor(running, rng, answered).ask(ids[start::CLIENTS]) for start in range(CLIENTS)]
        await asyncio.gather(*visitors)
        await until(lambda: running.in_flight == 0)
        proxy: Any = running.gateway._proxy
        await until(lambda: not len(proxy._alarms))
        assert len(proxy._running) == 0
        assert not proxy._waiting._waiting
        assert not any(replica.resting for replica in running.replicas)
        sent = Counter(message.header(b"x-request-id") for message in running.asked)
        assert max(sent.values()) <= ATTEMPTS + 1  # and once more where a kept connection was stale
        assert sum(answered.values()) == REQUESTS
        assert answered["whole"] > REQUESTS / 10, answered
        assert await running.metric("steplane_hedges_total", outcome="won") > 0
        assert await running.metric("steplane_retries_total") > 0
