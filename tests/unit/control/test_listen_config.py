"""`listen` and `forwarding`: what may be written, what it means, and how a mistake is named."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from gateway.control.config import Config, load_config, parse_config
from gateway.control.network import Address, UnixPath
from gateway.control.problem import ConfigError
from tests.integration.wire.certificates import Authority, make_authority

REST = "\ndefault_pool: a\npools: {a: {replicas: [http://127.0.0.1:1]}}\n"


def config(text: str) -> Config:
    return parse_config(text + REST, "f.yaml")


@pytest.mark.parametrize(
    ("listen", "arguments"),
    [
        ("127.0.0.1:8080", [{"host": "127.0.0.1", "port": 8080}]),
        ('"[::1]:8080"', [{"host": "::1", "port": 8080}]),
        ("unix:/run/steplane.sock", [{"path": "/run/steplane.sock", "mode": None}]),
        ("{address: unix:/run/steplane.sock, mode: 0660}", [{"path": "/run/steplane.sock", "mode": 0o660}]),
        ("{address: 0.0.0.0:80, proxy_protocol: true}", [{"host": "0.0.0.0", "port": 80, "proxy_protocol": True}]),
        (
            '[0.0.0.0:80, "[::]:80", {address: unix:/a}]',
            [{"host": "0.0.0.0", "port": 80}, {"host": "::", "port": 80}, {"path": "/a", "mode": None}],
        ),
        ("[127.0.0.1:0, 127.0.0.1:0]", [{"host": "127.0.0.1", "port": 0}] * 2),
    ],
)
def test_one_listener_or_many_each_as_text_or_as_a_mapping(listen: str, arguments: list[dict[str, object]]) -> None:
    usual = {"certificate": None, "proxy_protocol": False}
    found = [listener.arguments(Path()) for listener in config(f"listen: {listen}").listen]
    assert found == [usual | expected for expected in arguments]


def test_a_listener_is_shown_as_a_client_would_write_it(tmp_path: Path) -> None:
    text = "listen: [127.0.0.1:80, unix:/a, {address: '[::1]:443', tls: {certificate: tls.pem, key: tls.key}}]"
    certificate(tmp_path)
    (tmp_path / "f.yaml").write_text(text + REST)
    listeners = load_config(tmp_path / "f.yaml").listen
    assert [each.url for each in listeners] == ["http://127.0.0.1:80", "unix:/a", "https://[::1]:443"]
    assert [each.address for each in listeners] == [Address("127.0.0.1", 80), UnixPath("/a"), Address("::1", 443)]
    assert listeners[2].arguments(tmp_path)["certificate"].context is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen: 8080", "f.yaml:1:9: listen: expected HOST:PORT, as in 127.0.0.1:8080, found 8080"),
        ("listen: []", "f.yaml:1:9: listen: expected at least 1 entry, found an empty list"),
        (
            "listen:\n  - 127.0.0.1:80\n  - nowhere",
            "f.yaml:3:5: listen[1]: expected HOST:PORT, as in 127.0.0.1:8080, found 'nowhere'",
        ),
        (
            "listen: unix:run/a.sock",
            "f.yaml:1:9: listen: expected unix:/PATH with the whole path of a socket, as in unix:/run/steplane.sock, "
            "found 'unix:run/a.sock'",
        ),
        (
            "listen: {adress: 127.0.0.1:80}",
            "f.yaml:1:1: listen.address: expected a value, for this key is required, found nothing\n"
            "f.yaml:1:10: listen.adress: expected one of address, mode, tls, proxy_protocol, found an unknown key "
            "(did you mean address?)",
        ),
        (
            "listen:\n  - {address: 127.0.0.1:80, tls: {key: a}}",
            "f.yaml:2:29: listen[0].tls.certificate: expected a value, for this key is required, found nothing",
        ),
        (
            "listen:\n  address: unix:/a\n  mode: rw",
            "f.yaml:3:9: listen.mode: expected permissions in octal, as in 0660, found 'rw'",
        ),
        (
            "listen: {address: 127.0.0.1:80, mode: 0660}",
            "f.yaml:1:39: listen.mode: expected no mode, for only a Unix socket has one, found '0660'",
        ),
        (
            "listen: [127.0.0.1:80, unix:/a, unix:/a]",
            "f.yaml:1:33: listen[2]: expected each address once, found 'unix:/a'",
        ),
        (
            "listen: {address: 127.0.0.1:80, tls: {certificate: none.pem}}",
            "f.yaml:1:33: listen.tls: expected a certificate and its key in PEM files, "
            "found none.pem is not there or cannot be read",
        ),
        (
            "listen: [127.0.0.1:80, 127.0.0.1:81]\nadmin: {listen: 127.0.0.1:81}",
            "f.yaml:2:17: admin.listen: expected another address than that of listen, found 127.0.0.1:81",
        ),
        (
            "forwarding: {trusted_proxies: [10.0.0.1/8]}",
            "f.yaml:1:32: forwarding.trusted_proxies[0]: expected an address or network, as in 10.0.0.0/8, or unix, "
            "found '10.0.0.1/8' (the bits behind the prefix must be zero)",
        ),
        (
            "forwarding: {headers: x-real-ip}",
            "f.yaml:1:23: forwarding.headers: expected 'off', 'x-forwarded', 'rfc7239' or 'both', found 'x-real-ip'",
        ),
        (
            "forwarding: {via: a b}",
            "f.yaml:1:19: forwarding.via: expected a name of letters, digits and . _ -, found 'a b'",
        ),
    ],
)
def test_a_mistake_is_named_where_it_stands(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config(text)
    assert "\n".join(str(problem) for problem in raised.value.problems) == said


def test_replicas_are_told_of_clients_unless_that_is_switched_off() -> None:
    built = config("").forwarding.build()
    assert built is not None
    assert built.concerns(b"x-forwarded-for")
    assert not built.concerns(b"via")
    assert config("forwarding: {headers: off}").forwarding.build() is None
    via = config("forwarding: {headers: off, via: edge}").forwarding.build()
    assert via is not None
    assert via.concerns(b"via")
    assert not via.concerns(b"forwarded")


def test_proxies_are_trusted_by_address_network_or_socket() -> None:
    text = "forwarding: {trusted_proxies: [192.0.2.1, 10.0.0.0/8, 'fd00::/8', unix]}"
    built = config(text).forwarding.build()
    assert built is not None
    trusted = ["192.0.2.1", str(next(ip_network("10.0.0.0/8").hosts())), "fd12::1", ""]
    assert [built.peer(address, False).trusted for address in [*trusted, "192.0.2.2"]] == [True] * 4 + [False]


def certificate(folder: Path) -> Authority:
    authority = make_authority(folder)
    for source, name in zip(authority.sign("made"), ("tls.pem", "tls.key"), strict=True):
        source.rename(folder / name)
    return authority
