"""One loop and one pair of proxies for all examples."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
import uvloop

from .proxies import HAPROXY, Proxy, both


@pytest.fixture(scope="package")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


@pytest.fixture(scope="package")
def proxies(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Proxy]]:
    if HAPROXY is None:
        pytest.skip("haproxy is not installed; on Debian or Ubuntu: apt-get install haproxy")
    stack = AsyncExitStack()
    try:
        yield runner.run(stack.enter_async_context(both(tmp_path_factory.mktemp("proxies"))))
    finally:
        runner.run(stack.aclose())
