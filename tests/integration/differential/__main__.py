"""`python -m tests.integration.differential`: the same comparison for as long as one likes, with new streams each time.

Owns the command line and the watch over the gateway: its memory, its log, its end. Exit status: 0 nothing was found,
1 something was, 2 not possible here.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy, lists

from .answers import Answered, answers
from .passing import Passing
from .proxies import HAPROXY, STEPLANE, Proxy, both
from .sameness import check
from .streams import Stream, streams

_AT_ONCE = 2000
"""Streams between two looks at the gateway."""
_WARM = 3
"""Looks before which the gateway's memory is not held against it: its caches fill."""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _growth_mib(sizes: list[float]) -> float:
    """How much the memory has grown since the caches were full."""
    return sizes[-1] - sizes[_WARM] if len(sizes) > _WARM + 1 else 0.0


def _fuzz(
    runner: asyncio.Runner, proxies: tuple[Proxy, Proxy], seconds: float, first_seed: int
) -> tuple[int, int, list[float]]:
    """Streams compared, messages sent on, and the gateway's memory at each look."""
    compared = sent_on = 0
    sizes: list[float] = []
    until = time.monotonic() + seconds

    def example(stream: Stream) -> None:
        nonlocal compared, sent_on
        if time.monotonic() < until:
            compared += 1
            sent_on += runner.run(check(stream, *proxies))

    turn = 0
    while time.monotonic() < until:
        _in_batches(first_seed + turn, example, stream=streams())
        turn += 1
        for proxy in proxies:
            proxy.check()
        sizes.append(proxies[1].rss_mib())
        _say(f"{compared} streams, {sent_on} messages sent on, {STEPLANE} {sizes[-1]:.1f} MiB")
    return compared, sent_on, sizes


def _fuzz_answers(runner: asyncio.Runner, passing: Passing, seconds: float, first_seed: int) -> tuple[int, int, int]:
    """Answers of replicas compared, those of them that were passed on whole, and batches."""
    compared = passed = turn = 0
    until = time.monotonic() + seconds

    def example(sequence: list[Answered]) -> None:
        nonlocal compared, passed
        if time.monotonic() < until:
            compared += len(sequence)
            passed += runner.run(passing.check(sequence))

    while time.monotonic() < until:
        _in_batches(first_seed + turn, example, sequence=lists(answers(), min_size=1, max_size=3))
        turn += 1
        _say(f"{compared} answers, {passed} passed on whole")
    return compared, passed, turn


def _in_batches(number: int, example: Callable[..., None], **strategies: SearchStrategy[Any]) -> None:
    """Try so many examples of one seed as lie between two looks at the gateway."""
    batch: Callable[[], None] = seed(number)(
        settings(max_examples=_AT_ONCE, deadline=None, database=None, suppress_health_check=list(HealthCheck))(
            given(**strategies)(example)
        )
    )
    batch()


def _main_answers(seconds: float, first_seed: int) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()
        try:
            passing = runner.run(stack.enter_async_context(Passing().running()))
            compared, passed, turns = _fuzz_answers(runner, passing, seconds, first_seed)
        finally:
            with contextlib.suppress(KeyboardInterrupt):
                runner.run(stack.aclose())
    seeds = f"seeds {first_seed} to {first_seed + turns - 1}"
    _say(f"{compared} answers of replicas in {seconds:g} s ({seeds}), {passed} passed on whole")
    _say("no difference, no hang, no exception")
    return 0


def main() -> int:
    """Compare, and say what was done."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.differential", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="how long (%(default)g)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the first batch; else random")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with Steplane installed (this one)")
    parser.add_argument("--max-growth-mib", type=float, default=16, help="of the gateway, once warm (%(default)g)")
    parser.add_argument("--answers", action="store_true", help="what replicas answer instead of what clients ask")
    options = parser.parse_args()
    if options.answers:
        _say(f"seed {options.seed}")
        return _main_answers(options.seconds, options.seed)
    if HAPROXY is None:
        _say("fuzz-wire: haproxy is not installed; on Debian or Ubuntu: apt-get install haproxy")
        return 2
    _say(f"seed {options.seed}")
    with (
        tempfile.TemporaryDirectory(prefix="steplane-fuzz-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        stack = AsyncExitStack()
        try:
            proxies = runner.run(stack.enter_async_context(both(Path(folder), options.python)))
            compared, sent_on, sizes = _fuzz(runner, proxies, options.seconds, options.seed)
        finally:
            with contextlib.suppress(KeyboardInterrupt):
                runner.run(stack.aclose())
    growth = _growth_mib(sizes)
    seeds = f"seeds {options.seed} to {options.seed + len(sizes) - 1}"
    _say(f"{compared} streams of bytes in {options.seconds:g} s ({seeds}), {sent_on} messages sent on")
    _say(f"no difference, no hang, no exception; memory {growth:+.1f} MiB since the caches were full")
    if growth > options.max_growth_mib:
        _say(f"fuzz-wire: the gateway has grown by more than {options.max_growth_mib:g} MiB")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
