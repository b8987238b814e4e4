"""What replicas and clients say of time in headers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.retry.deadline import DeadlineHeader
from gateway.retry.retryafter import header_of, retry_after_s

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("99999999999999999999", 1e9),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sunday, 01-Mar-26 12:00:30 GMT", 30.0),
        ("Sun Mar  1 12:00:30 2026", 30.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Sun, 01 Mar 2026 13:00:30 +0100", 30.0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("١٢", None),
        ("Sun, 99 Mar 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after_s(value, NOW) == seconds


@given(st.text(max_size=60))
def test_whatever_it_says_is_time_or_nothing(value: str) -> None:
    seconds = retry_after_s(value, NOW)
    assert seconds is None or seconds >= 0.0


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (b"HTTP/1.1 503 Busy\r\nRetry-After: 5\r\n\r\n", "5"),
        (b"HTTP/1.1 503 Busy\r\na: b\r\nretry-after:\t6 \r\nretry-after: 7\r\n\r\n", "6"),
        (b"HTTP/1.1 503 Busy\r\na: b\r\n\r\nretry-after: 8\r\n\r\n", None),
        (b"retry-after: 9\r\n\r\n", None),
        (b"", None),
    ],
)
def test_a_header_is_read_from_the_head_alone(message: bytes, value: str | None) -> None:
    assert header_of(message, b"retry-after") == value


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [
        ("x-request-timeout", b"2.5", 2.5),
        ("X-Request-Timeout", b" 3 ", 3.0),
        ("x-request-timeout-ms", b"1500", 1.5),
        ("x-envoy-expected-rq-timeout-ms", b"200", 0.2),
        ("x-request-timeout", b"1e9", 86400.0),
        ("x-request-timeout", b"0", None),
        ("x-request-timeout", b"-1", None),
        ("x-request-timeout", b"nan", None),
        ("x-request-timeout", b"inf", None),
        ("x-request-timeout", b"soon", None),
        ("x-request-timeout", b"", None),
    ],
)
def test_a_deadline_is_read_in_the_unit_of_its_header_s_name(name: str, value: bytes, seconds: float | None) -> None:
    assert DeadlineHeader(name).seconds(value) == seconds


@pytest.mark.parametrize(
    ("name", "left_s", "line"),
    [
        ("X-Request-Timeout", 1.23456, b"x-request-timeout: 1.235\r\n"),
        ("x-request-timeout", -3.0, b"x-request-timeout: 0.001\r\n"),
        ("x-request-timeout-ms", 1.23456, b"x-request-timeout-ms: 1234\r\n"),
        ("x-request-timeout-ms", 0.0, b"x-request-timeout-ms: 1\r\n"),
    ],
)
def test_what_is_left_is_told_in_the_same_unit_and_is_never_nothing(name: str, left_s: float, line: bytes) -> None:
    assert DeadlineHeader(name).line(left_s) == line
