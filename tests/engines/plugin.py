"""Engines with the plugin beside them: how it is installed, and what its feed says of them.

It is installed as pip installs it, into a folder of its own, so that the other engine tests run without it.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.clients.processes import answers, free_port, running
from tests.engines.build import MODEL, REPOSITORY, SHIMS, VLLM, engine_environment
from tests.engines.sglang_server import START_S, sglang_process

# Above what anything usual takes on a slow machine.
COMPILE_LIMIT_MS = 15_000
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}


def _name(number: int) -> str:
    """One that has nothing in common with the others."""
    return "".join("abcdefghijklmnop"[byte % 16] for byte in hashlib.sha256(str(number).encode()).digest()[:24])


# Open objects with many unlike names are what xgrammar compiles for minutes.
ENDLESS = {
    "type": "object",
    "properties": {_name(number): {"type": "string"} for number in range(500)},
    "additionalProperties": True,
}


def install(target: Path) -> None:
    """Put this checkout where a Python finds it with its entry points."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(REPOSITORY)]
    subprocess.run(command, check=True)


def python_path(site: Path) -> str:
    """Where an engine's Python finds the plugin."""
    return os.pathsep.join([str(site), str(SHIMS)])


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    """A `response_format`."""
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


class Measured:
    """An engine and the feed beside it."""

    def __init__(self, url: str, feed: str) -> None:
        self.url = url
        self.feed = feed

    def get(self, path: str) -> dict[str, Any]:
        document: dict[str, Any] = httpx.get(self.feed + path, timeout=30).json()
        return document

    def summary(self) -> dict[str, Any]:
        return self.get("/summary")

    def offences(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/stacks")["offences"]
        return found

    def wait_for_step(self) -> None:
        """Until it computes something."""
        while not self.summary()["step_runs"]:
            pass

    def abort(self, rid: str) -> None:
        httpx.post(f"{self.feed}/abort", json={"rid": rid}, timeout=30).raise_for_status()

    def steps_during(self, calls: Sequence[Callable[[], object]], enough: int, least: int) -> list[dict[str, Any]]:
        """So many decode steps of at least `least` sequences, while these calls run side by side, again and again."""
        steps: list[dict[str, Any]] = []
        together = threading.Thread(target=run_together, args=calls)
        with httpx.stream("GET", f"{self.feed}/steps?from=newest", timeout=60) as stream:
            lines = (json.loads(line) for line in stream.iter_lines())
            next(lines)
            together.start()
            while len(steps) < enough:
                line = next(lines)  # one a second at least
                if line["event"] == "step" and line["mode"] == "decode" and line["sequences"] >= least:
                    steps.append(line)
                if not together.is_alive():
                    together = threading.Thread(target=run_together, args=calls)
                    together.start()
        together.join()
        return steps


def assert_hooks_add_up(steps: Sequence[dict[str, Any]]) -> None:
    """Within 10 %: what each request's hooks took, and what was done for all, is what the step's hooks took."""
    for step in steps:
        own_us = sum(us for own in step["requests"].values() for us in own.values())
        assert abs(own_us + step["shared_us"] - step["hook_us"]) <= 0.1 * step["hook_us"], step
        assert step["forward_us"] + step["hook_us"] <= step["step_us"] * 1.01, step


def run_together(*calls: Callable[[], object]) -> None:
    """Run all calls at once and wait for them."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def assert_feed_comes_back(engine: Measured, old: dict[str, Any]) -> dict[str, Any]:
    """The summary of a feed that was killed and started again by its engine, which `old` was a summary of."""
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(httpx.TransportError):
            new = engine.summary()
            assert new["boot"] == old["boot"]
            return new
        assert time.monotonic() < deadline, "the feed has not come back"
        time.sleep(0.1)


def child_feed(pid: int) -> int:
    """The process id of the feed beside the engine core `pid`."""
    for task in os.listdir(f"/proc/{pid}/task"):
        for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
            if b"replica.feed" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError(f"process {pid} has no step feed")


@contextmanager
def sglang_with_plugin(
    name: str,
    site: Path,
    grammar_backend: str,
    *,
    overlap: bool,
    variables: Mapping[str, str],
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The URL of SGLang with the plugin, and the process that leads it. Its feed is on its port + 1000."""
    flags = ["--grammar-backend", grammar_backend]
    variables = {"PYTHONPATH": python_path(site), **variables}
    with sglang_process(name, flags, overlap=overlap, variables=variables) as served:
        yield served


@contextmanager
def vllm_with_plugin(site: Path, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The URLs of vLLM with the plugin and of its feed."""
    port, feed = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    serve = [
        *(str(VLLM.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODEL)),
        *("--served-model-name", "tiny", "--max-model-len", "4096", "--max-num-seqs", "32", "--dtype", "bfloat16"),
        *("--max-logprobs", "20", "--enforce-eager", "--host", "127.0.0.1", "--port", str(port)),
    ]
    environment = engine_environment() | {
        "PYTHONPATH": python_path(site),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "STEPLANE_FEED_LISTEN": f"127.0.0.1:{feed}",
        **variables,
    }
    ready = answers(f"{url}/health", timeout_s=30)
    with running("vllm-plugin", serve, ready=ready, start_s=START_S, environment=environment):
        yield url, f"http://127.0.0.1:{feed}"
