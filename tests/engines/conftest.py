"""Builds the engine's environment and model once, then serves them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.served import Served, tapped_gateway
from tests.engines.build import SGLANG, build_environment, build_model
from tests.engines.plugin import install
from tests.engines.sglang_server import PACE_S, sglang, slow_down

_FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines to print at the end of the run: what was measured, on a machine too noisy to judge it by."""
    return request.config.stash.setdefault(_FIGURES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_FIGURES, [])
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def sglang_installed() -> None:
    """A real SGLang and a model for it. The first time takes minutes and the network."""
    build_environment(SGLANG)
    build_model(SGLANG)


@pytest.fixture(scope="session")
def plugin_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has Steplane in it, for an engine's `PYTHONPATH`."""
    site = tmp_path_factory.mktemp("site")
    install(site)
    return site


@pytest.fixture(scope="session")
def sglang_url(sglang_installed: None) -> Iterator[str]:
    """A running SGLang server."""
    with sglang() as url:
        slow_down(url, PACE_S)
        yield url


@pytest.fixture(scope="session")
def served(sglang_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The gateway in front of that server."""
    with tapped_gateway(tmp_path_factory.mktemp("gateway"), {"engine": {"sglang": sglang_url}}) as running:
        yield running
