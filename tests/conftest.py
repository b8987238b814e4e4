"""What holds of all tests: none of them changes how others log, and none leaves a handle of uvloop's open.

Such a handle fails the run at its end: as a warning, it can't be raised where it is noticed.
"""

import gc
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import settings

# Everybody tries the same examples, so that a run that passes here passes elsewhere, however slow the machine is.
# `HYPOTHESIS_PROFILE=new` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

_LEFT_OPEN: list[str] = []


def pytest_collection_finish() -> None:
    _set_aside()


@pytest.fixture(autouse=True, scope="module")
def little_to_collect() -> Iterator[None]:
    """Keep collections off what thousands of tests are made of and leave behind: each full one took half a second."""
    yield
    _set_aside()


def _set_aside() -> None:
    gc.collect()
    gc.freeze()


def pytest_warning_recorded(warning_message: warnings.WarningMessage, nodeid: str) -> None:
    if issubclass(warning_message.category, ResourceWarning):
        _LEFT_OPEN.append(f"{nodeid}: {warning_message.message}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    gc.unfreeze()
    gc.collect()
    if _LEFT_OPEN and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _LEFT_OPEN:
        terminalreporter.write_line(f"LEFT OPEN {line}")


@pytest.fixture(autouse=True)
def logs_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that runs in a test's own process logs to a file that is closed with the test: nobody may keep it."""
    configure, before = structlog.configure, structlog.get_config()

    def uncached(**options: Any) -> None:
        configure(**{**options, "cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", uncached)
    yield
    configure(**before)
