"""How long a connection may rest: what is configured, less where the server tells or shows that it closes earlier."""

import pytest

from gateway.wire.idlelimit import IdleLimit


def test_without_a_sign_it_is_what_is_configured() -> None:
    assert IdleLimit(4.0).seconds == 4.0


@pytest.mark.parametrize(
    ("told_s", "seconds"), [(600, 50.0), (51, 50.0), (50, 49.0), (5, 4.0), (2, 1.0), (1, 0.5), (0, 0.0)]
)
def test_it_stays_below_what_the_server_tells(told_s: float, seconds: float) -> None:
    limit = IdleLimit(50.0)
    limit.told(told_s)
    assert limit.seconds == seconds


def test_what_the_server_tells_last_counts() -> None:
    limit = IdleLimit(50.0)
    limit.told(5)
    limit.told(20)
    assert limit.seconds == 19.0


CLOSINGS: list[tuple[str, list[tuple[float, float]], float]] = [
    ("one closing shows nothing", [(100.0, 5.0)], 50.0),
    ("two after the same rest show the limit", [(100.0, 5.0), (107.0, 5.1)], 4.0),
    ("two after different rests do not", [(100.0, 5.0), (107.0, 9.0)], 50.0),
    ("a restart closes all at once", [(100.0, 5.0), (100.001, 5.1), (100.002, 4.9)], 50.0),
    ("two restarts after different times", [(100.0, 30.0), (130.0, 2.0), (131.0, 12.0)], 50.0),
    ("a limit that comes to light later", [(100.0, 9.0), (107.0, 5.0), (114.0, 5.0)], 4.0),
    ("closings that we did not rest long enough for", [(100.0, 60.0), (170.0, 60.0)], 50.0),
    ("a limit near nothing is not followed to the end", [(100.0, 0.01), (101.0, 0.01)], 0.2),
]


@pytest.mark.parametrize(("closings", "seconds"), [case[1:] for case in CLOSINGS], ids=[case[0] for case in CLOSINGS])
def test_it_is_learned_from_what_the_server_closes(closings: list[tuple[float, float]], seconds: float) -> None:
    limit = IdleLimit(50.0)
    for now, rest_s in closings:
        limit.closed(rest_s, now)
    assert limit.seconds == pytest.approx(seconds)


def test_a_connection_closed_as_it_was_reused_shows_that_it_is_too_long_but_many_at_once_only_once() -> None:
    limit = IdleLimit(10.0)
    for now in (100.0, 100.1, 100.2):
        limit.stale(now)
    assert limit.seconds == pytest.approx(7.0)
    limit.stale(101.0)
    assert limit.seconds == pytest.approx(4.9)


def test_it_never_shrinks_to_nothing_by_what_was_only_learned() -> None:
    limit = IdleLimit(10.0)
    for now in range(100):
        limit.stale(float(now))
    assert limit.seconds == 0.2


def test_what_was_learned_is_forgotten_slowly_and_what_was_told_is_not() -> None:
    limit = IdleLimit(10.0)
    limit.told(9.0)
    limit.stale(100.0)
    learned = limit.seconds
    limit.forget(699.0)
    assert limit.seconds == learned
    now = 100.0
    grown = [learned]
    while limit.seconds < 8.0:
        now += 600.0
        limit.forget(now)
        grown.append(limit.seconds)
    assert grown == sorted(grown)
    assert 2 <= len(grown) < 10
    limit.forget(now + 6000.0)
    assert limit.seconds == 8.0
