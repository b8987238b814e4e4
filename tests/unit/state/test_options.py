"""What a URL of the shared store may say, and what is said of one that is wrong."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.state.options import Address, RedisOptions, Topology, read_address

LOCAL = (("localhost", 6379),)


@pytest.mark.parametrize(
    ("url", "address", "shown"),
    [
        ("redis://localhost", Address(Topology.single, False, LOCAL), "redis://localhost:6379/0"),
        (
            "rediss://me:p%40ss@host:7000/3",
            Address(Topology.single, True, (("host", 7000),), db=3, username="me", password="p@ss"),
            "rediss://host:7000/3",
        ),
        (
            "redis://:secret@[::1]:7000?db=2",
            Address(Topology.single, False, (("::1", 7000),), db=2, password="secret"),
            "redis://[::1]:7000/2",
        ),
        (
            "unix:///run/redis.sock?db=1",
            Address(Topology.unix, False, (), path="/run/redis.sock", db=1),
            "unix:///run/redis.sock",
        ),
        (
            "redis+sentinel://a,b:7000/states/4",
            Address(Topology.sentinel, False, (("a", 26379), ("b", 7000)), service="states", db=4),
            "redis+sentinel://a:26379,b:7000/states/4",
        ),
        (
            "rediss+cluster://me:it@a,b:7000",
            Address(Topology.cluster, True, (("a", 6379), ("b", 7000)), username="me", password="it"),
            "rediss+cluster://a:6379,b:7000",
        ),
    ],
)
def test_a_url_says_where_and_is_shown_without_secrets(url: str, address: Address, shown: str) -> None:
    assert read_address(url) == address
    assert str(address) == shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://localhost"}, "begins with one of redis://"),
        ({"url": "localhost:6379"}, "begins with one of redis://"),
        ({"url": "redis://"}, "expected host or host:port, found ''"),
        ({"url": "redis://host:port"}, "expected host or host:port, found 'host:port'"),
        ({"url": "redis://host:99999"}, "expected host or host:port, found 'host:99999'"),
        ({"url": "redis://a,b"}, "expected one host"),
        ({"url": "redis://a/zero"}, "expected the number of a database, found 'zero'"),
        ({"url": "redis://a/1/2"}, "expected nothing more after the hosts, found '1/2'"),
        ({"url": "redis://a?timeout=3"}, "expected no option but db, found timeout"),
        ({"url": "redis+sentinel://a,b"}, "expected the service's name"),
        ({"url": "redis+cluster://a,b/0"}, "expected nothing more after the hosts"),
        ({"url": "redis+cluster://a?db=1"}, "expected no database"),
        ({"url": "unix://"}, "expected an absolute path of a socket"),
        ({"url": "redis://a", "prefix": "a{b}"}, "prefix: expected a name without braces and blanks, found 'a{b}'"),
        ({"url": "redis://a", "prefix": ""}, "prefix: expected"),
        (
            {"url": "redis://a", "password": "x", "password_file": Path("y")},
            "expected either password or password_file",
        ),
        ({"url": "rediss://a", "key_file": Path("y")}, "key_file: expected cert_file beside it"),
        ({"url": "redis://a", "ca_file": Path("y")}, "ca_file: expected a URL that encrypts"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        RedisOptions(**options)


def test_no_error_repeats_a_password() -> None:
    with pytest.raises(ValueError, match="expected host") as raised:
        read_address("redis://me:hunter2@host:port")
    assert "hunter2" not in str(raised.value)


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    monkeypatch.delitem(sys.modules, "gateway.state.redislink", raising=False)
    with pytest.raises(ModuleNotFoundError, match=re.escape("pip install 'steplane[redis]'")):
        importlib.import_module("gateway.state.redislink")
