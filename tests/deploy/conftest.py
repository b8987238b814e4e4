"""What is installed, for all tests of a folder or of a module; installing takes its time on a busy machine."""

from pathlib import Path

import pytest

from tests.deploy.installed import Environment, build

HERE = Path(__file__).parent
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """One for each module, with what the simulator needs."""
    environment = Environment(tmp_path_factory.mktemp("environment") / "venv")
    # Wheels alone: a dependency that would have to be compiled fails here.
    environment.pip("install", "--quiet", "--only-binary", ":all:", f"{wheel}[simulator]", **NO_COMPILER)
    return environment
