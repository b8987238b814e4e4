"""Builds the engine's environment and model once, then serves them."""

from collections.abc import Iterator

import pytest

from tests.clients.served import Served, tapped_gateway
from tests.engines.build import SGLANG, build_environment, build_model
from tests.engines.sglang_server import sglang, slow_down


@pytest.fixture(scope="session")
def sglang_installed() -> None:
    """A real SGLang and a model for it. The first time takes minutes and the network."""
    build_environment(SGLANG)
    build_model(SGLANG)


@pytest.fixture(scope="session")
def sglang_url(sglang_installed: None) -> Iterator[str]:
    """A running SGLang server, slowed down so that its HTTP process keeps pace and cuts its events regularly."""
    with sglang() as url:
        slow_down(url, 0.02)
        yield url


@pytest.fixture(scope="session")
def served(sglang_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The gateway in front of that server."""
    with tapped_gateway(tmp_path_factory.mktemp("gateway"), {"engine": {"sglang": sglang_url}}) as running:
        yield running
