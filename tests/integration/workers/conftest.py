"""A replica, and two workers in front of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.integration.workers.harness import Replica, Serving

Start = Callable[..., Awaitable[Serving]]


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    async with Replica() as replica:
        yield replica


@pytest.fixture
async def start(replica: Replica, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts two workers; `more` is further YAML."""
    started: list[Serving] = []

    async def start_one(more: str = "", environment: dict[str, str] | None = None) -> Serving:
        serving = Serving(tmp_path, replica, more)
        started.append(serving)
        await serving.start(environment)
        return serving

    yield start_one
    for serving in started:
        await serving.end()
