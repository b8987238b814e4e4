"""A real Envoy that asks `steplane epp`; `make test-envoy` gets one from PyPI."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def envoy() -> Path:
    """The program."""
    program = Path(os.environ.get("ENVOY", ".venvs/envoy/bin/envoy"))
    if not program.exists():
        pytest.fail(f"there is no Envoy at {program}: run `make test-envoy`, or say where one is in ENVOY")
    return program.absolute()
