"""A Redis of its own for each test, and as many gateways on it as it wants."""

import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.state.booksserver import BooksServer
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
async def books(tmp_path: Path) -> AsyncIterator[Path]:
    """The socket of a supervisor's books."""
    path = tmp_path / "books"
    server = BooksServer()
    await server.start(path)
    yield path
    await server.close()


@pytest.fixture(params=["redis", "supervisor"])
def place(request: pytest.FixtureRequest) -> str | Path:
    """Where gateways share what they know: a Redis, or the books of a supervisor."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("server")
        return server.url
    path: Path = request.getfixturevalue("books")
    return path


@pytest.fixture
async def join() -> AsyncIterator[Join]:
    """Adds a gateway to those on a Redis. All of them leave in the end."""
    gateways: list[Gateway] = []

    async def join_one(place: str | Path, **options: Any) -> Gateway:
        gateway = Gateway(place, **options)
        gateways.append(gateway)
        await gateway.store.start()
        return gateway

    yield join_one
    for gateway in gateways:
        await gateway.store.close()
