"""What the soak makes of its slices."""

import os
import socket

import pytest

from loadtest.wire.soak import Slice, growth_bytes, sockets


def slices(*rss_mib: float) -> list[Slice]:
    return [Slice(10.0 * at, 100, 0, "", 100.0, int(mib * 2**20), 9) for at, mib in enumerate(rss_mib)]


def test_memory_that_stays_has_no_slope() -> None:
    assert growth_bytes(slices(*[50.0] * 20)) == (0.0, 0.0)


def test_memory_that_grows_at_the_beginning_is_a_cache_that_fills() -> None:
    assert growth_bytes(slices(10, 30, 50, 60, *[70.0] * 16)) == (0.0, 0.0)


def test_memory_that_grows_all_the_time_has_the_slope_that_it_has() -> None:
    hourly, over_all = growth_bytes(slices(*[50 + at for at in range(20)]))
    assert hourly == pytest.approx(360 * 2**20)
    assert over_all == pytest.approx(15 * 2**20)


@pytest.mark.parametrize("count", [0, 1])
def test_of_too_few_slices_nothing_can_be_said(count: int) -> None:
    assert growth_bytes(slices(*[50.0] * count)) == (0.0, 0.0)


def test_open_sockets_are_counted_and_other_files_are_not() -> None:
    before = sockets(os.getpid())
    with socket.socket(), open(os.devnull, "rb"):
        assert sockets(os.getpid()) == before + 1
    assert sockets(os.getpid()) == before
