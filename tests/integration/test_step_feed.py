"""The step feed of an engine in a process of its own: what readers get, and that nothing they do reaches the engine."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from loadtest.ports import is_free
from tests.clients.processes import free_port

# An engine without a model: steps of 2 ms. It prints a line for every verdict and, when its stdin closes, its figures.
ENGINE = """
import os, resource, select, sys, threading, time
if os.environ.get("NO_MEMORY"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
if os.environ.get("FULL_DISK"):
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
from replica.attachment import attach
from replica.feed.process import EngineName
from replica.settings import Listen, read_settings
settings = read_settings(os.environ, Listen("127.0.0.1", int(sys.argv[1])))
attachment = attach(settings, EngineName("test", "1.0"), lambda verdict: print(verdict.rid, verdict.reason, flush=True))
recorder = attachment.recorder
closing = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), closing.set()), daemon=True).start()
print("ready", flush=True)
padding = "x" * int(os.environ.get("PADDING", 8))
laps = []
while not closing.is_set():
    begin = time.perf_counter()
    recorder.step_begins()
    recorder.batch("decode", 8, 0)
    time.sleep(0.002)
    recorder.forward(2000.0)
    first = len(recorder.hooks)
    begun = time.perf_counter()
    for number in range(8):
        recorder.hooks.append((f"r{number}{padding}", 0, 1.0))
    recorder.rest_of_section((time.perf_counter() - begun) * 1e6 + 8.0, first)
    laps.append(time.perf_counter() - begin)
print("steps", recorder.steps, flush=True)
attachment.close()
"""


def wait_until(true: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.02)


@dataclass
class Running:
    process: subprocess.Popen[str]
    port: int
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        response = httpx.get(self.url + path, headers=self.headers, timeout=30)
        response.raise_for_status()
        return response.json()

    def answers(self) -> bool:
        try:
            return httpx.get(self.url + "/health", headers=self.headers, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    @contextmanager
    def lines(self, query: str = "") -> Iterator[Iterator[dict[str, Any]]]:
        with httpx.stream("GET", f"{self.url}/steps{query}", headers=self.headers, timeout=30) as response:
            response.raise_for_status()
            yield (json.loads(line) for line in response.iter_lines())

    def finish(self) -> str:
        output, _ = self.process.communicate(timeout=30)
        return output


@contextmanager
def engine(port: int | None = None, wait: bool = True, **environment: str) -> Iterator[Running]:
    port = port or free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(ENGINE), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | environment,
    )
    running = Running(process, port)
    if token := environment.get("STEPLANE_FEED_TOKEN"):
        running.headers["authorization"] = f"Bearer {token}"
    try:
        if wait:
            wait_until(running.answers, "the feed answers")
        yield running
    finally:
        if process.poll() is None:
            feeds = children(process.pid)
            process.kill()
            for feed in feeds:  # they would wait for readers for a while
                os.kill(feed, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    """An engine for tests that do it no harm."""
    with engine() as running:
        yield running


def take_steps(lines: Iterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    while len(steps) < count:
        line = next(lines)
        assert line["event"] in {"step", "alive"}
        if line["event"] == "step":
            steps.append(line)
    return steps


def test_the_stream_opens_with_who_speaks_and_goes_on_without_gaps(shared: Running) -> None:
    with shared.lines("?from=newest") as lines:
        hello = next(lines)
        assert hello["event"] == "hello"
        assert (hello["engine"], hello["version"], hello["pid"]) == ("test", "1.0", shared.process.pid)
        steps = take_steps(lines, 200)
    first = steps[0]["seq"]
    assert 0 <= hello["next_seq"] - first < 200
    assert [step["seq"] for step in steps] == list(range(first, first + 200))
    step = steps[-1]
    assert step["sequences"] == 8
    assert step["forward_us"] == 2000.0
    assert sum(step["kinds"].values()) == pytest.approx(step["hook_us"], rel=0.1)
    assert sum(sum(own.values()) for own in step["requests"].values()) + step["shared_us"] == pytest.approx(
        step["hook_us"], rel=0.1
    )
    assert abs(step["at"] - time.time()) < 60


def test_a_reader_resumes_where_it_was(shared: Running) -> None:
    with shared.lines("?from=newest") as lines:
        boot = next(lines)["boot"]
        seen = take_steps(lines, 10)[-1]["seq"]
    with shared.lines(f"?boot={boot}&after={seen}") as lines:
        next(lines)
        assert [step["seq"] for step in take_steps(lines, 10)] == list(range(seen + 1, seen + 11))


def test_after_a_restart_of_the_engine_a_reader_gets_all_there_is(shared: Running) -> None:
    with shared.lines("?boot=another&after=3") as lines:
        hello = next(lines)
        first = take_steps(lines, 1)[0]["seq"]
    assert hello["boot"] != "another"
    assert first < hello["next_seq"]


def test_steps_of_little_hook_time_can_be_left_out(shared: Running) -> None:
    with shared.lines("?from=newest&min_hook_us=1e9") as lines:
        next(lines)
        assert next(lines)["event"] == "alive"


def test_a_rollup_comes_every_second_and_misses_no_step(shared: Running) -> None:
    with shared.lines("?from=newest&min_own_us=1e9&rollup_s=0.2") as lines:
        hello = next(lines)
        rollups = [next(lines) for _ in range(3)]
    assert [line["event"] for line in rollups] == ["rollup"] * 3
    first = rollups[0]["after"] - rollups[0]["steps"]
    assert 0 <= first - (hello["next_seq"] - 1) < 50
    for before, line in itertools.pairwise(rollups):
        assert line["after"] - line["steps"] == before["after"]
    line = rollups[-1]
    assert (line["sequences"], line["forward_us"]) == (8 * line["steps"], 2000.0 * line["steps"])
    assert len(line["requests"]) == 8
    assert all(own["steps"] + line["starved"] == line["steps"] for own in line["requests"].values())


def test_a_reader_of_rollups_resumes_after_the_last_and_counts_nothing_twice(shared: Running) -> None:
    with shared.lines("?from=newest&min_own_us=1e9&rollup_s=0.2") as lines:
        boot = next(lines)["boot"]
        after = next(lines)["after"]
    with shared.lines(f"?boot={boot}&after={after}&min_own_us=1e9&rollup_s=0.2") as lines:
        next(lines)
        line = next(lines)
    assert line["after"] - line["steps"] == after


def test_the_requests_of_a_dear_step_are_those_that_made_it_dear(shared: Running) -> None:
    with shared.lines("?from=newest&min_own_us=0.5") as lines:
        next(lines)
        assert len(take_steps(lines, 1)[0]["requests"]) == 8
    with shared.lines("?from=newest&min_own_us=1.5") as lines:
        next(lines)
        assert next(lines)["event"] == "alive"


@pytest.mark.parametrize(
    "query", ["after=x", "min_hook_us=much", "min_own_us=nan", "rollup_s=-1", "min_own_us=1&rollup_s=often"]
)
def test_a_query_that_makes_no_sense_is_refused(shared: Running, query: str) -> None:
    response = httpx.get(f"{shared.url}/steps?{query}", timeout=30)
    assert response.status_code == 400
    assert "sequence number" in response.text


def test_the_summary_counts_every_step(shared: Running) -> None:
    wait_until(lambda: shared.get("/summary")["step"]["count"] > 100, "the summary has seen steps")
    summary = shared.get("/summary")
    assert summary["lost"] == 0
    assert summary["modes"]["decode"] == summary["step"]["count"] == summary["forward"]["count"]
    assert summary["forward"]["p50_us"] == pytest.approx(2000.0, rel=0.06)
    assert summary["itl"]["p50_us"] >= 2000.0
    assert len(summary["offenders"]) == 8


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"rid": 3}', '{"rid": ""}', '{"rid": "a", "reason": 1}', "[" * 5000])
def test_an_abort_that_names_nobody_is_refused(shared: Running, body: str) -> None:
    response = httpx.post(f"{shared.url}/abort", content=body, timeout=30)
    assert response.status_code == 400
    assert "rid" in response.json()["error"]


@pytest.mark.parametrize("seconds", ["0", "61", "x", "-1", "1.5"])
def test_a_flamegraph_has_a_sensible_length(shared: Running, seconds: str) -> None:
    response = httpx.get(f"{shared.url}/flamegraph?seconds={seconds}", timeout=30)
    assert response.status_code == 400
    assert "1 to 60" in response.json()["error"]


def test_a_flamegraph_shows_the_step_thread(shared: Running) -> None:
    response = httpx.get(f"{shared.url}/flamegraph?seconds=1", timeout=60)
    if response.status_code in {501, 502}:
        pytest.skip(response.json()["error"])
    assert response.status_code == 200
    assert response.headers["content-type"] == "image/svg+xml"
    assert "<svg" in response.text


def test_an_abort_reaches_the_engine_and_the_stream() -> None:
    with engine() as running:
        with running.lines("?from=newest&min_hook_us=1e9") as lines:
            next(lines)
            reply = httpx.post(f"{running.url}/abort", json={"rid": "r1", "reason": "because"}, timeout=30)
            assert reply.status_code == 202
            offence = next(line for line in lines if line["event"] == "offence")
        assert (offence["rid"], offence["limit"], offence["reason"]) == ("r1", "asked", "because")
        assert running.get("/stacks")["offences"][0]["rid"] == "r1"
        assert "r1 because" in running.finish()


def test_a_reader_that_stops_reading_is_told_what_it_lost_and_slows_nobody() -> None:
    # A second of records, which all but the one that is stuck read in time, however busy the machine is.
    with engine(STEPLANE_RING_MIB="8", PADDING="2000") as running:
        with socket.create_connection(("127.0.0.1", running.port)) as stuck:
            stuck.sendall(b"GET /steps HTTP/1.1\r\nhost: feed\r\n\r\n")
            begin = running.get("/summary")["next_seq"]
            with running.lines("?from=newest") as lines:
                next(lines)
                take_steps(lines, 2000)
            stuck.settimeout(30)
            with stuck.makefile("rb") as late:
                lost = next(json.loads(line) for line in late if line.startswith(b'{"event":"lost"'))
        assert lost["count"] > 0
        assert running.get("/summary")["next_seq"] > begin + 2000
        assert running.get("/summary")["lost"] == 0


def test_killing_a_reader_hurts_neither_the_engine_nor_other_readers() -> None:
    read = "import sys, urllib.request; r = urllib.request.urlopen(sys.argv[1]); print(r.readline()); r.read()"
    with engine() as running, running.lines("?from=newest") as lines:
        next(lines)
        victim = subprocess.Popen([sys.executable, "-c", read, running.url + "/steps"], stdout=subprocess.PIPE)
        assert victim.stdout is not None
        with victim.stdout:
            assert victim.stdout.readline()
        victim.kill()
        victim.wait()
        take_steps(lines, 500)


def test_when_the_engine_is_killed_readers_get_the_rest_and_hear_it() -> None:
    with engine() as running:
        with running.lines() as lines:
            assert next(lines)["event"] == "hello"
            take_steps(lines, 5)
            running.process.send_signal(signal.SIGKILL)
            rest = list(lines)
        end = rest[-1]
        assert (end["event"], end["reason"]) == ("end", "engine_gone")
        assert [line["seq"] for line in rest if line["event"] == "step"][-1] == end["next_seq"] - 1
        response = httpx.get(running.url + "/health", timeout=30)
        assert response.status_code == 503
        assert running.get("/summary")["engine_gone"] is True
        wait_until(lambda: is_free(running.port), "the feed of a dead engine ends")


def test_a_killed_feed_comes_back_and_says_where_it_is() -> None:
    with engine() as running:
        with running.lines() as lines:
            boot = next(lines)["boot"]
            seen = take_steps(lines, 10)[-1]["seq"]
        (feed,) = children(running.process.pid)
        os.kill(feed, signal.SIGKILL)
        wait_until(lambda: children(running.process.pid) not in ([], [feed]) and running.answers(), "the feed is back")
        with running.lines(f"?boot={boot}&after={seen}") as lines:
            assert next(lines)["boot"] == boot
            following = next(lines)
        assert following["seq"] == seen + 1 or following["event"] == "lost"


def test_an_engine_without_memory_for_records_runs_on_without_a_feed() -> None:
    with engine(wait=False, NO_MEMORY="1") as running:
        output = ""
        assert running.process.stdout is not None
        while "ready" not in output:
            output += running.process.stdout.readline()
        assert "no step feed: 16 MiB of shared memory cannot be had" in output
        assert children(running.process.pid) == []
        assert int(running.finish().split("steps ")[1]) >= 0


def test_with_its_log_on_a_full_disk_an_engine_and_its_feed_go_on() -> None:
    with engine(FULL_DISK="1") as running:
        before = running.get("/summary")
        running.get("/stacks")
        with running.lines("?from=newest") as lines:
            assert next(lines)["event"] == "hello"
            take_steps(lines, 50)
        assert running.get("/summary")["next_seq"] > before["next_seq"]
        assert running.get("/summary")["lost"] == 0
        (feed,) = children(running.process.pid)
        os.kill(feed, signal.SIGKILL)
        # Whatever the engine would like to log of it.
        wait_until(lambda: running.answers() and children(running.process.pid) != [feed], "the feed is back")


def test_a_feed_whose_address_is_taken_waits_for_it() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with engine(port=holder.getsockname()[1], wait=False) as running:
            assert running.process.stdout is not None
            output = ""
            while "trying on" not in output:
                output += running.process.stdout.readline()
            assert "STEPLANE_FEED_LISTEN" in output
            holder.close()
            wait_until(running.answers, "the feed has its address")


def test_a_feed_can_want_a_token() -> None:
    with engine(STEPLANE_FEED_TOKEN="secret") as running:
        assert running.get("/summary")["engine"] == "test"
        for headers in ({}, {"authorization": "Bearer wrong"}):
            assert httpx.get(running.url + "/summary", headers=headers, timeout=30).status_code == 401
            assert httpx.post(running.url + "/abort", headers=headers, timeout=30).status_code == 401


def test_without_a_feed_no_process_is_started() -> None:
    with engine(wait=False, STEPLANE_FEED_LISTEN="off") as running:
        assert running.process.stdout is not None
        while running.process.stdout.readline().strip() != "ready":
            pass
        assert children(running.process.pid) == []


def children(pid: int) -> list[int]:
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            found += [int(child) for child in file.read().split()]
    return found
