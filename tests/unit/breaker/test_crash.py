"""Who kills replicas: blamed on the second death, and only without an alibi."""

from collections.abc import Callable

import pytest

from gateway.breaker.record import State
from gateway.breaker.trip import Cause


def dies(world, replica: str, *running: object, elsewhere: tuple[object, ...] = ()) -> None:
    world.trust.replica_died(replica, running, elsewhere)


def test_two_different_replicas_that_die_within_seconds_of_receiving_it(world) -> None:
    dies(world, "gpu-1", world.attempt(1.0))
    assert world.state() is State.closed

    world.at_s += 3000.0
    dies(world, "gpu-2", world.attempt(9.9, replica="gpu-2"))

    trip = world.verdict().record.trip
    assert (trip.cause, trip.count, trip.unit, trip.replica) == (Cause.crash, 2, "replicas", "gpu-2")


def twice(first: Callable[..., None], second: Callable[..., None], gap_s: float = 100.0) -> Callable[..., None]:
    def story(world) -> None:
        first(world)
        world.at_s += gap_s
        second(world)

    return story


def death(replica: str, ago_s: float = 1.0, **origin: object) -> Callable[..., None]:
    return lambda world: dies(world, replica, world.attempt(ago_s, replica=replica, **origin))


def ended_well(at_s: float, replica_death: Callable[..., None]) -> Callable[..., None]:
    """It ends well somewhere, then the death."""

    def story(world) -> None:
        world.trust.finished("elsewhere", "s1-a", answered=True)
        world.at_s += at_s
        replica_death(world)

    return story


NOT_BLAMED: dict[str, Callable[..., None]] = {
    "one death": death("gpu-1"),
    "the same replica twice": twice(death("gpu-1"), death("gpu-1")),
    "deaths too far apart": twice(death("gpu-1"), death("gpu-2"), gap_s=3601.0),
    "received too long before": twice(death("gpu-1", 10.1), death("gpu-2", 10.1)),
    "received too long before one of them": twice(death("gpu-1", 10.1), death("gpu-2", 1.0)),
    "without hook work": twice(death("gpu-1", costly=False), death("gpu-2", costly=False)),
    "in quarantine already": twice(death("gpu-1"), death("gpu-2", pool="quarantine")),
    "it ended well just before the first death": twice(ended_well(59.0, death("gpu-1")), death("gpu-2")),
    "it ended well just before the second": twice(death("gpu-1"), ended_well(59.0, death("gpu-2"))),
    "it ended well between the two": twice(death("gpu-1"), ended_well(3000.0, death("gpu-2"))),
    "it runs well elsewhere meanwhile": twice(
        death("gpu-1"),
        lambda w: dies(
            w, "gpu-2", w.attempt(1.0, replica="gpu-2"), elsewhere=(w.attempt(10.5, replica="gpu-3", request_id="x"),)
        ),
    ),
}


@pytest.mark.parametrize("story", NOT_BLAMED.values(), ids=NOT_BLAMED.keys())
def test_not_blamed_for(world, story: Callable[..., None]) -> None:
    story(world)

    assert world.verdict() is None


STILL_BLAMED: dict[str, Callable[..., None]] = {
    "it ended well long before": ended_well(61.0, twice(death("gpu-1"), death("gpu-2"))),
    "it was received elsewhere a moment ago": twice(
        death("gpu-1"),
        lambda w: dies(
            w, "gpu-2", w.attempt(1.0, replica="gpu-2"), elsewhere=(w.attempt(2.0, replica="gpu-3", request_id="x"),)
        ),
    ),
    "its answer broke off elsewhere": twice(
        lambda w: [death("gpu-1")(w), w.trust.finished("x", "s1-a", answered=False)], death("gpu-2")
    ),
    "a third one died before": twice(death("gpu-3"), twice(death("gpu-1"), death("gpu-2"), gap_s=3000.0), gap_s=1000.0),
}


@pytest.mark.parametrize("story", STILL_BLAMED.values(), ids=STILL_BLAMED.keys())
def test_blamed_although(world, story: Callable[..., None]) -> None:
    story(world)

    assert world.verdict().record.trip.cause is Cause.crash


def test_of_all_that_ran_there_only_who_was_there_both_times_is_blamed(world) -> None:
    def running(replica: str, *signatures: str) -> None:
        dies(world, replica, *[world.attempt(1.0, replica=replica, signature=name) for name in signatures])

    running("gpu-1", "s1-a", "s1-b", "s1-c")
    world.at_s += 30.0
    world.trust.finished("r7", "s1-c", answered=True)
    running("gpu-2", "s1-a", "s1-c", "s1-d")

    assert [told.record.key for told in world.told] == ["s1-a"]


def test_once_tripped_it_takes_two_deaths_again(world) -> None:
    death("gpu-1")(world)
    death("gpu-2")(world)
    world.trust.release(world.told[0].record.kind, "s1-a", "kim", "engine was updated")
    death("gpu-3")(world)

    assert world.verdict() is None
