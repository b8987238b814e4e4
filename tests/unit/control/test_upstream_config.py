"""What a configuration may say of the connections to a pool's replicas, and how mistakes in it are found."""

from pathlib import Path

import pytest

from gateway.control.config import Config, load_config, parse_config
from gateway.control.problem import ConfigError
from gateway.wire.clienttls import TlsOptions
from gateway.wire.poolpolicy import PoolPolicy

POOL = """default_pool: a
pools:
  a:
    replicas: ["http://127.0.0.1:1"]
    upstream: {upstream}
"""


def config_of(upstream: str) -> Config:
    return parse_config(POOL.format(upstream=upstream), "c.yaml")


def test_without_a_word_everything_is_as_the_wire_has_it() -> None:
    assert config_of("{}").pools["a"].upstream.policy() == PoolPolicy()


def test_every_key_of_the_policy_can_be_set() -> None:
    upstream = (
        config_of(
            "{max_connections: 8, max_waiting: 9, wait_s: 1.5, min_idle: 2, max_idle: 4, idle_s: 3, "
            "max_requests_per_connection: 100, max_connection_age_s: 600, dns_refresh_s: 5, dead_after_s: 0}"
        )
        .pools["a"]
        .upstream
    )
    assert upstream.policy() == PoolPolicy(
        max_connections=8,
        max_waiting=9,
        wait_s=1.5,
        min_idle=2,
        max_idle=4,
        idle_s=3,
        max_requests_per_connection=100,
        max_connection_age_s=600,
        dns_refresh_s=5,
        dead_after_s=0,
    )


def test_the_files_of_tls_are_looked_for_beside_the_configuration() -> None:
    tls = config_of("{tls: {server_name: engine.test, verify: false}}").pools["a"].upstream.tls
    assert tls.options(Path("there")) == TlsOptions(server_name="engine.test", verify=False)
    named = tls.model_copy(update={"ca": "ca.pem", "client_certificate": "/abs/c.pem", "client_key": "c.key"})
    options = named.options(Path("there"))
    assert options.files == (Path("there/ca.pem"), Path("/abs/c.pem"), Path("there/c.key"))


@pytest.mark.parametrize(
    ("upstream", "place", "words"),
    [
        ("{max_connection: 1}", "5:16", "did you mean max_connections?"),
        ("{max_connections: -1}", "5:33", "at least 0"),
        ("{wait_s: 0}", "5:24", "above 0"),
        ("{min_idle: 3, max_idle: 2}", "5:15", "a min_idle of at most max_idle"),
        ("{min_idle: 3, max_connections: 2}", "5:15", "a min_idle of at most max_connections"),
        ("{tls: {client_key: k.pem}}", "5:21", "a client_certificate beside the client_key"),
        ("{tls: {ca: none.pem}}", "5:16", "none.pem: expected certificates of authorities in PEM, found no such file"),
    ],
)
def test_a_mistake_is_found_where_it_stands(upstream: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_of(upstream)
    (problem,) = raised.value.problems
    assert words in str(problem)
    assert str(problem).startswith(f"c.yaml:{place}: pools.a.upstream")


def test_a_file_beside_the_configuration_that_holds_no_certificate_is_found(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    file = tmp_path / "gateway.yaml"
    file.write_text(POOL.format(upstream="{tls: {ca: ca.pem}}"))
    with pytest.raises(ConfigError, match=r"ca\.pem: expected certificates of authorities in PEM"):
        load_config(file)


@pytest.mark.parametrize("named", [True, False])
def test_a_replica_at_a_unix_socket_needs_a_name(named: bool) -> None:
    replica_text = "{url: 'unix:/run/e.sock'" + (", name: e1}" if named else "}")
    text = POOL.format(upstream="{}").replace('"http://127.0.0.1:1"', replica_text)
    if named:
        replica = parse_config(text).pools["a"].replicas[0]
        assert (replica.label, str(replica.url)) == ("e1", "unix:/run/e.sock")
    else:
        with pytest.raises(ConfigError, match="a name for a replica at a Unix socket"):
            parse_config(text)
