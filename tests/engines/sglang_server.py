"""Starts the real SGLang server on CPU with the tiny model, and stops it."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx

from tests.clients.case import MODEL as MODEL_NAME
from tests.clients.processes import answers, free_port, running
from tests.engines.build import MODEL, SGLANG, engine_environment

# Loading torch and warming up takes 20-90 s, several times that on a busy machine.
START_S = 600.0


@contextmanager
def sglang(
    name: str = "sglang",
    extra: Sequence[str] = (),
    *,
    overlap: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The URL of a served tiny model, up until the block ends; see `sglang_process`."""
    with sglang_process(name, extra, overlap=overlap, variables=variables) as (url, _):
        yield url


@contextmanager
def sglang_process(
    name: str = "sglang",
    extra: Sequence[str] = (),
    *,
    overlap: bool = False,
    variables: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The URL of a served tiny model, and its process, which leads a session of its own.

    `extra` flags are added to the command and `variables` to its environment; with `overlap` it runs SGLang's default
    event loop, which prepares a batch while the one before is computed.

    Output is as deterministic as it gets: greedy decoding of one request at a time gives the same tokens and the same
    log probabilities every time, because nothing is taken from a prefix cache.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *(str(SGLANG.python), "-m", "sglang.launch_server"),
        *("--model-path", str(MODEL), "--served-model-name", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--device", "cpu", "--attention-backend", "torch_native", "--dtype", "bfloat16"),
        *("--mem-fraction-static", "0.1", "--max-total-tokens", "65536", "--max-running-requests", "32"),
        *("--context-length", "4096", "--random-seed", "1", "--disable-radix-cache"),
        # With overlap, chance decides whether the last two tokens share an event.
        *(() if overlap else ("--disable-overlap-schedule",)),
        "--enable-metrics",
        "--sleep-on-idle",  # else the scheduler spins a core when idle
        # A random model prefers white space to anything that would end a JSON document.
        "--constrained-json-disable-any-whitespace",
        # Holds a required tool call to its JSON schema; others use tags between which white space may go on for ever.
        *("--tool-call-parser", "pythonic"),
        *extra,
    ]
    environment = engine_environment() | {
        "SGLANG_USE_CPU_ENGINE": "1",
        # By itself SGLang would look every 4 s and every 50 tokens whether the client of an unstreamed request is still
        # there. It never does here, so that it can only have been told by the gateway.
        "SGLANG_REQUEST_STATE_WAIT_TIMEOUT": "3600",
        "SGLANG_FORCE_STREAM_INTERVAL": "1000000",
        **(variables or {}),
    }
    ready = answers(f"{url}/health", timeout_s=30)
    with running(name, command, ready=ready, start_s=START_S, environment=environment) as process:
        yield url, process


PACE_S = 0.02
"""What a forward pass takes longer in the tests: enough for the engine's HTTP process to keep up and cut its events one
by one."""


def slow_down(url: str, forward_s: float | None) -> None:
    """Make every forward pass of the engine at `url` take `forward_s` longer; None: back to its own pace."""
    httpx.post(f"{url}/slow_down", json={"forward_sleep_time": forward_s}, timeout=30).raise_for_status()
