"""Ports for servers that listen later: nobody else comes upon them meanwhile."""

import socket

import pytest

from loadtest import ports
from loadtest.ports import free_port


class Chance:
    """Draws these, one after the other."""

    def __init__(self, *drawn: int) -> None:
        self._drawn = list(drawn)

    def randrange(self, first: int, end: int) -> int:
        return self._drawn.pop(0)


def test_no_port_is_given_twice_nor_one_above_that_was_given() -> None:
    given = {port + each for port in (free_port(1000) for _ in range(200)) for each in (0, 1000)}

    assert len(given) == 400
    assert max(given) < 32_768


def test_a_port_is_passed_over_where_it_or_the_one_above_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port(7)
    monkeypatch.setattr(ports, "_GIVEN", set())
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken: int = other.getsockname()[1]
        monkeypatch.setattr(ports, "_CHANCE", Chance(taken, taken - 7, free))

        assert free_port(7) == free


def test_a_server_takes_what_it_was_given() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        assert server.getsockname()[1] > 0
