"""What of a configuration holds where Envoy carries the requests."""

import pytest

from gateway.control.config import Config, parse_config
from gateway.epp.fit import UnfitError, fitted, left_out

POOLS = """
default_pool: a
pools:
  a: {replicas: [http://127.0.0.1:1]%s}
rules:
  - {name: r, pool: a%s}
"""


def parsed(pool: str = "", rule: str = "") -> Config:
    return parse_config(POOLS % (pool, rule))


def test_nothing_is_sent_twice_and_no_connection_kept() -> None:
    config = parsed(", retry: {attempts: 5}, hedge: {}, upstream: {min_idle: 3, max_connections: 4}")
    pool = fitted(config).pools["a"]
    assert (pool.retry.attempts, pool.hedge, pool.breaker.on_trip) == (1, None, "end")
    assert (pool.upstream.max_requests_per_connection, pool.upstream.min_idle, pool.upstream.max_connections) == (
        1,
        0,
        0,
    )
    assert config.pools["a"].retry.attempts == 5


def test_rules_send_nothing_twice_either() -> None:
    (rule,) = fitted(parsed(rule=", retry: {attempts: 5}, hedge: {}")).rules
    assert rule.retry is not None
    assert (rule.retry.attempts, rule.hedge) == (1, None)


def test_envoy_says_for_whom_it_forwards() -> None:
    assert fitted(parsed()).forwarding.build() is None


def test_what_runs_may_still_be_left_to_finish() -> None:
    assert fitted(parsed(", breaker: {on_trip: let_finish}")).pools["a"].breaker.on_trip == "let_finish"


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("", []),
        (", hedge: {}", ["pools.a.hedge"]),
        (", retry: {attempts: 2}", ["pools.a.retry"]),
        (", retry: {attempts: 1}", []),
        (", breaker: {on_trip: rerun}", ["pools.a.breaker.on_trip"]),
        (", breaker: {on_trip: end}", []),
    ],
)
def test_what_was_asked_for_and_is_left_out_is_told(pool: str, said: list[str]) -> None:
    assert [each.partition(":")[0] for each in left_out(parsed(pool))] == said


def test_envoy_reaches_no_unix_socket() -> None:
    config = parse_config("default_pool: a\npools:\n  a: {replicas: [{url: 'unix:/run/engine', name: e}]}\n")
    with pytest.raises(UnfitError, match=r"pools\.a: replica e is at unix:/run/engine"):
        fitted(config)
