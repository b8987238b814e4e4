"""A handle of uvloop's that a test leaves open fails the run: as a warning, it can't be raised where it is noticed."""

import warnings

import pytest

_LEFT_OPEN: list[str] = []


def pytest_warning_recorded(warning_message: warnings.WarningMessage, nodeid: str) -> None:
    if issubclass(warning_message.category, ResourceWarning):
        _LEFT_OPEN.append(f"{nodeid}: {warning_message.message}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _LEFT_OPEN and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _LEFT_OPEN:
        terminalreporter.write_line(f"LEFT OPEN {line}")
