"""Addresses, and the order in which a server's are tried."""

import socket

import pytest

from gateway.wire.address import Address, interleaved, literal


@pytest.mark.parametrize(
    ("host", "family", "text"),
    [
        ("127.0.0.1", socket.AF_INET, "127.0.0.1:80"),
        ("::1", socket.AF_INET6, "[::1]:80"),
        ("2001:db8::7", socket.AF_INET6, "[2001:db8::7]:80"),
    ],
)
def test_a_literal_is_an_address_without_a_lookup(host: str, family: int, text: str) -> None:
    address = literal(host, 80)
    assert address is not None
    assert (address.family, str(address)) == (family, text)


@pytest.mark.parametrize("host", ["localhost", "replica-1", "x" * 70 + ".invalid"])
def test_a_name_is_no_literal(host: str) -> None:
    assert literal(host, 80) is None


def at(text: str) -> Address:
    family = socket.AF_INET6 if text.startswith("6") else socket.AF_INET
    return Address(family, (text, 80))


@pytest.mark.parametrize(
    ("addresses", "first", "order"),
    [
        ("4a", None, "4a"),
        ("4a 4b", None, "4a 4b"),
        ("6a 6b 6c 4a 4b", None, "6a 4a 6b 4b 6c"),
        ("4a 4b 6a", None, "4a 6a 4b"),
        ("6a 6b 4a", "6b", "6b 4a 6a"),
        ("6a 6b 4a", "4a", "4a 6a 6b"),
        ("6a 4a", "4z", "6a 4a"),
        ("4a", "4a", "4a"),
    ],
)
def test_the_families_take_turns_behind_the_address_that_accepted_last(
    addresses: str, first: str | None, order: str
) -> None:
    found = interleaved([at(each) for each in addresses.split()], None if first is None else at(first))
    assert [address.sockaddr[0] for address in found] == order.split()
