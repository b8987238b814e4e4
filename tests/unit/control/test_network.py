import pytest

from gateway.control.network import Address, AddressError, Origin, parse_address, parse_origin


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("localhost:65535", Address("localhost", 65535)),
        ("[::1]:8080", Address("::1", 8080)),
        ("gateway-1.internal.:80", Address("gateway-1.internal.", 80)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "8080", ":8080", "h:", "h:x", "h:65536", "h:-1", "h:٣", "::1:8080", "h/x:1", "1.2.3:1", "a b:1", 8080, None],
)
def test_what_is_no_address_is_refused(text: object) -> None:
    with pytest.raises(AddressError):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("http://10.0.0.7:30000", Origin("http", "10.0.0.7", 30000)),
        ("http://replica-1/", Origin("http", "replica-1", 80)),
        ("HTTPS://Replica.Example", Origin("https", "replica.example", 443)),
        ("http://[fe80::1]:1", Origin("http", "fe80::1", 1)),
    ],
)
def test_a_replica_is_an_origin(text: str, origin: Origin) -> None:
    assert parse_origin(text) == origin
    assert parse_origin(str(origin)) == origin


@pytest.mark.parametrize(
    "text",
    ["unix:/run/engine.sock", "unix:///run/engine.sock", "http+unix:///run/engine.sock", "http+unix:/run/engine.sock"],
)
def test_a_replica_may_be_at_a_unix_socket(text: str) -> None:
    origin = parse_origin(text)
    assert origin == Origin("unix", "", 0, "/run/engine.sock")
    assert str(origin) == origin.authority == "unix:/run/engine.sock"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.7:30000",
        "ftp://h:1",
        "http://",
        "http://:80",
        "http://h:0",
        "http://h:65536",
        "http://h:x",
        "http://h:1/v1",
        "http://h:1?x=1",
        "http://h:1#x",
        "http://me:secret@h:1",
        "http://1.2.3:1",
        "http://[::1:1",
        "http://a b:1",
        "http://a\r\nb:1",
        "unix:",
        "unix:engine.sock",
        "unix://engine.sock",
        "unix:/run/",
        "unix:/" + "x" * 107,
        "unix:/run/a b",
        "https+unix:///run/engine.sock",
        7,
        None,
    ],
)
def test_what_is_no_origin_is_refused(text: object) -> None:
    with pytest.raises(AddressError):
        parse_origin(text)
