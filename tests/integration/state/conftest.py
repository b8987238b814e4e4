"""A Redis of its own for each test, and as many gateways on it as it wants."""

import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.state.harness import Gateway, RedisServer

Join = Callable[..., Awaitable[Gateway]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The package redis leaves a connection to the garbage collector when it is cancelled while it connects.
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(autouse=True)
def no_garbage_is_left_to_other_tests() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.kill()


@pytest.fixture
async def join() -> AsyncIterator[Join]:
    """Adds a gateway to those on a Redis. All of them leave in the end."""
    gateways: list[Gateway] = []

    async def join_one(url: str, **options: Any) -> Gateway:
        gateway = Gateway(url, **options)
        gateways.append(gateway)
        await gateway.store.start()
        return gateway

    yield join_one
    for gateway in gateways:
        await gateway.store.close()
