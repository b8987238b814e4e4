"""The configuration of logs and traces: what may be said, what is refused, and what is not shown."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from gateway.control.config import Config, parse_config
from gateway.control.logs import configure_logs
from gateway.control.logsconfig import AccessConfig, LogsConfig
from gateway.control.problem import ConfigError
from gateway.control.secrets import HIDDEN, shown_config

LEAST = "default_pool: a\npools: {a: {replicas: ['http://h:1']}}\n"


def config(text: str = "") -> Config:
    return parse_config(text + "\n" + LEAST, "f.yaml", {})


def test_by_default_nothing_is_traced_and_requests_get_no_line() -> None:
    assert config().tracing is None
    assert config().logs == LogsConfig(format="auto", level="info", access=None)
    assert config("logs: {access: off}").logs.access is None


def test_access_lines_are_sampled() -> None:
    assert config("logs: {access: {}}").logs.access == AccessConfig(sample=1.0, slow_s=None)
    assert config("logs: {access: {sample: 0.1, slow_s: 10}}").logs.access == AccessConfig(sample=0.1, slow_s=10)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp/v1/traces", "https://c/otlp/v1/traces"),
    ],
)
def test_spans_go_to_the_usual_path_unless_one_is_given(endpoint: str, url: str) -> None:
    tracing = config(f"tracing: {{endpoint: '{endpoint}'}}").tracing

    assert tracing is not None
    assert (tracing.url, tracing.sample, tracing.service) == (url, 1.0, "steplane")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tracing: {endpoint: 'c:4318'}", "f.yaml:1:21: tracing.endpoint: expected the URL of a collector"),
        ("tracing: {endpoint: 'http://c', sample: 2}", "f.yaml:1:41: tracing.sample: "),
        ("tracing: {}", "f.yaml:1:1: tracing.endpoint: "),
        ("logs: {level: loud}", "f.yaml:1:15: logs.level: "),
        ("logs: {access: {samples: 1}}", "f.yaml:1:17: logs.access"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config(text)

    assert said in str(raised.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.control.tracingconfig._NEEDED", ("opentelemetry.nothing_like_it",))

    with pytest.raises(ConfigError, match=r"steplane\[otel\]"):
        config("tracing: {endpoint: 'http://c'}")


def test_what_a_collector_is_shown_is_shown_to_nobody_else() -> None:
    found = config("tracing: {endpoint: 'http://c', headers: {x-team: sk-hidden}}")

    assert shown_config(found, {})["tracing"]["headers"] == {"x-team": HIDDEN}


@pytest.fixture
def configured() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.usefixtures("configured")
def test_loggers_that_were_used_follow_another_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogsConfig(format="json"))
    log: Any = structlog.get_logger("steplane.test")
    log.info("first", tenant="acme")
    log.debug("left_out")
    configure_logs(LogsConfig(format="console", level="error"))
    log.warning("left_out")
    log.error("second", pool="a")

    first, *others = capsys.readouterr().err.splitlines()
    said = json.loads(first)
    assert (said["event"], said["level"], said["tenant"]) == ("first", "info", "acme")
    assert len(others) == 1
    assert "second" in others[0]
    assert logging.getLevelNamesMapping()["ERROR"] == logging.ERROR
