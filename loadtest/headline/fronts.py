"""What stands before the replicas, one at a time under load: one mixed pool, the peers, and Steplane."""

import contextlib
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from loadtest.breaker.site import cache_aware, gateway, reads_feeds
from loadtest.wire.contenders import CONTENDERS

MIXED = "mixed pool"
OURS = "Steplane"
PEERS = ("sglang-router", "smg")
SLOTS = 16
"""Sequences that a simulated replica runs at once; the others wait in it."""
_QUEUED = 2
"""What Steplane sends beyond that, so that an engine whose sequence ends has another at once."""

_POOLS = """\
default_pool: interactive
hookcost: {{grammar_backend: {backend}}}
pools:
  interactive:
    replicas: [{interactive}]
    step_budget_us: 2000
    admission: {{max_in_flight: {most}}}
    when_full: {{spill: grammar}}
  grammar:
    replicas: [{grammar}]
    step_budget_us: 6000
    when_unavailable: {{spill: quarantine}}
    when_full: {{spill: quarantine}}
  quarantine: {{replicas: [{quarantine}]}}
rules:
  - {{name: heavy, when: {{heavy: true}}, pool: quarantine}}
  - {{name: raw-grammar, when: {{grammar: [ebnf, regex]}}, pool: quarantine}}
  - {{name: prompt-logprobs, when: {{prompt_logprobs: true}}, pool: quarantine}}
  - {{name: over-budget, when: {{step_us: ">3000"}}, pool: quarantine}}
  - {{name: long-compile, when: {{compile_ms: ">200"}}, pool: quarantine}}
  - {{name: structured, when: {{grammar: any}}, pool: grammar}}
  - {{name: many-logprobs, when: {{top_logprobs: ">5"}}, pool: grammar}}
"""
_TWO_POOLS = """\
default_pool: interactive
hookcost: {{grammar_backend: {backend}}}
pools:
  interactive: {{replicas: [{interactive}], step_budget_us: 1000}}
  quarantine: {{replicas: [{quarantine}]}}
rules:
  - {{name: structured, when: {{grammar: any}}, pool: quarantine}}
  - {{name: prompt-logprobs, when: {{prompt_logprobs: true}}, pool: quarantine}}
  - {{name: many-logprobs, when: {{top_logprobs: ">5"}}, pool: quarantine}}
"""


@dataclass(frozen=True, slots=True)
class Front:
    """One that runs. `admin`: of a Steplane that keeps pools apart."""

    name: str
    url: str
    admin: str | None = None


def installed_peers() -> tuple[list[str], list[str]]:
    """The peers that are there, made where they can be, and a line for each that could not be had."""
    there, missing = [], []
    for peer in CONTENDERS:
        if peer.name not in PEERS:
            continue
        try:
            if peer.missing() is not None and peer.install is not None:
                peer.install()
            there.append(peer.name)
        except (subprocess.CalledProcessError, OSError) as error:
            missing.append(f"{peer.version()} could not be installed from PyPI: {error}")
    return there, missing


def front(
    name: str, replicas: Sequence[str], feeds: int, backend: str, folder: Path
) -> AbstractAsyncContextManager[Front]:
    """Start one. `feeds`: replicas that have a step feed; `backend`: what compiles their grammars."""
    if name == MIXED:
        return _mixed(replicas, folder)
    if name == OURS:
        return _ours(replicas, feeds, backend, folder)
    return _peer(name, replicas, folder)


def configuration(replicas: Sequence[str], backend: str) -> str:
    """Steplane's, without addresses: the last replicas are for grammars and for quarantine, the others interactive."""
    if len(replicas) < 4:
        *interactive, quarantine = replicas
        return _TWO_POOLS.format(backend=backend, interactive=", ".join(interactive), quarantine=quarantine)
    *interactive, grammar, quarantine = replicas
    return _POOLS.format(
        backend=backend,
        interactive=", ".join(interactive),
        grammar=grammar,
        quarantine=quarantine,
        most=SLOTS + _QUEUED,
    )


@contextlib.asynccontextmanager
async def _mixed(replicas: Sequence[str], folder: Path) -> AsyncIterator[Front]:
    pool = f"{{replicas: [{', '.join(replicas)}], feed: 'off', balance: round_robin}}"
    async with gateway("mixed", f"default_pool: all\npools: {{all: {pool}}}", folder) as running:
        yield Front(MIXED, running.url)


@contextlib.asynccontextmanager
async def _ours(replicas: Sequence[str], feeds: int, backend: str, folder: Path) -> AsyncIterator[Front]:
    async with gateway("steplane", configuration(replicas, backend), folder) as running:
        await reads_feeds(running, feeds)
        yield Front(OURS, running.url, running.admin)


@contextlib.asynccontextmanager
async def _peer(name: str, replicas: Sequence[str], folder: Path) -> AsyncIterator[Front]:
    async with cache_aware(name, replicas, folder) as url:
        yield Front(name, url)
