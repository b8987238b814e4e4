import pytest

from gateway.wire.addresscount import AddressCounts, network_of


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.8", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_a_client_is_an_ipv4_address_or_an_ipv6_network(one: str, other: str, alike: bool) -> None:
    assert (network_of(one) == network_of(other)) is alike


def test_an_address_has_room_up_to_its_limit_and_again_when_one_has_left() -> None:
    counts = AddressCounts(2)
    assert [counts.enter("192.0.2.7") for _ in range(3)] == [True, True, False]
    assert counts.enter("192.0.2.8")
    counts.leave("192.0.2.7")
    assert [counts.enter("192.0.2.7") for _ in range(2)] == [True, False]


def test_nothing_is_kept_of_those_that_have_left() -> None:
    counts = AddressCounts(1)
    for number in range(100):
        address = f"192.0.2.{number}"
        assert counts.enter(address)
        counts.leave(address)
    assert len(counts) == 0


def test_what_has_no_address_is_not_counted() -> None:
    counts = AddressCounts(1)
    assert all(counts.enter("") for _ in range(10))
    counts.leave("")
    assert len(counts) == 0
