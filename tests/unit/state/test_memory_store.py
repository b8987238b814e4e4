"""The store of a single gateway, with a clock that stands where it is put."""

import math
from collections.abc import Mapping

import pytest

from gateway.state import MemoryStore, Record, Store


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    return MemoryStore(clock=clock, ttls_s={"signature": 60.0})


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        # f forces, a digit advances from that version; each puts its own number
        ("f", (1, b"0")),
        ("ff", (2, b"1")),
        ("f1", (2, b"1")),
        ("f0", (1, b"0")),
        ("f2", (1, b"0")),
        ("f11", (2, b"1")),
        ("f12", (3, b"2")),
        ("f1f", (3, b"2")),
        ("0", (1, b"0")),
        ("00", (1, b"0")),
        ("5", None),
    ],
)
def test_a_force_always_counts_and_an_advance_only_from_the_version_it_expects(
    store: Store, changes: str, left: tuple[int, bytes] | None
) -> None:
    for number, change in enumerate(changes):
        value = str(number).encode()
        if change == "f":
            store.force("signature", "s", value)
        else:
            store.advance("signature", "s", int(change), value)
    assert store.record("signature", "s") == (Record(*left) if left is not None else None)


def test_an_advance_tells_what_came_of_it_after_its_watchers_heard(store: Store) -> None:
    heard: list[object] = []
    store.watch("signature", lambda key, version, value: heard.append((key, version, value)))
    assert store.force("signature", "s", b"open") == 1
    store.advance("signature", "s", 1, b"half-open", decided=heard.append)
    store.advance("signature", "s", 1, b"closed", decided=heard.append)
    assert heard == [("s", 1, b"open"), ("s", 2, b"half-open"), True, False]


def test_a_late_watcher_is_told_what_exists_and_only_of_its_kind(store: Store) -> None:
    store.force("signature", "s", b"open")
    store.force("signature", "s", b"closed")
    store.force("tenant", "t", b"open")
    heard: list[object] = []
    store.watch("signature", lambda *change: heard.append(change))
    assert heard == [("s", 2, b"closed")]
    assert store.records("signature") == {"s": Record(2, b"closed")}


def test_changes_that_a_watcher_makes_are_told_in_order(store: Store) -> None:
    first: list[int] = []
    second: list[int] = []

    def answer(key: str, version: int, value: bytes) -> None:
        first.append(version)
        if version < 3:
            store.force("signature", key, b"again")

    store.watch("signature", answer)
    store.watch("signature", lambda key, version, value: second.append(version))
    store.force("signature", "s", b"open")
    assert (first, second) == ([1, 2, 3], [1, 2, 3])


def test_a_watcher_that_raises_harms_neither_the_caller_nor_the_others(store: Store) -> None:
    heard: list[str] = []

    def fail(key: str, version: int, value: bytes) -> None:
        raise RuntimeError("a fault of the watcher")

    store.watch("signature", fail)
    store.watch("signature", lambda key, version, value: heard.append(key))
    assert store.force("signature", "s", b"open") == 1
    assert store.force("signature", "t", b"open") == 1
    assert heard == ["s", "t"]


@pytest.mark.parametrize(
    ("kind", "ttl_s", "later_s", "left"),
    [
        ("signature", None, 59.0, True),
        ("signature", None, 60.0, False),
        ("signature", 5.0, 5.0, False),
        ("signature", math.inf, 1e12, True),
        ("unheard-of", None, 29 * 86400.0, True),
        ("unheard-of", None, 30 * 86400.0, False),
    ],
)
def test_a_record_is_forgotten_when_it_has_not_changed_for_its_time_to_live(
    store: Store, clock: Clock, kind: str, ttl_s: float | None, later_s: float, left: bool
) -> None:
    store.force(kind, "s", b"open", ttl_s=ttl_s)
    clock.now += later_s
    assert (store.record(kind, "s") is not None) is left
    assert ("s" in store.records(kind)) is left


def test_what_has_expired_takes_no_room(store: Store, clock: Clock) -> None:
    assert isinstance(store, MemoryStore)
    for number in range(5000):
        store.force("signature", str(number), b"open")
        store.add("signature", str(number), {"trips": 1.0})
        clock.now += 1.0
    assert len(store.records("signature")) == 59
    assert len(store._records["signature"]) < 1000
    assert len(store._counters) < 1000


async def test_a_lease_has_one_holder_until_it_is_released_or_over(store: Store, clock: Clock) -> None:
    assert await store.lease("probe", 10.0)
    assert not await store.lease("probe", 10.0)
    assert await store.lease("another", 10.0)
    clock.now += 10.0
    assert await store.lease("probe", 10.0)
    store.release("probe")
    assert await store.lease("probe", 10.0)
    store.release("never leased")


@pytest.mark.parametrize(
    ("added", "totals"),
    [
        ([], {}),
        ([{"requests": 1.0}], {"requests": 1.0}),
        ([{"requests": 1.0, "over": 0.5}, {"requests": 2.0}], {"requests": 3.0, "over": 0.5}),
    ],
)
def test_counters_add_up_by_name(store: Store, added: list[Mapping[str, float]], totals: dict[str, float]) -> None:
    for amounts in added:
        store.add("tenant", "t", amounts)
    assert store.totals("tenant", "t") == totals


def test_counters_begin_anew_when_their_time_is_over(store: Store, clock: Clock) -> None:
    store.add("signature", "s", {"trips": 3.0})
    clock.now += 60.0
    assert store.totals("signature", "s") == {}
    store.add("signature", "s", {"trips": 1.0})
    assert store.totals("signature", "s") == {"trips": 1.0}


async def test_it_is_always_well(store: Store) -> None:
    await store.start()
    status = store.status()
    assert (status.kind, status.connected, status.pending, status.last_error) == ("memory", True, 0, None)
    await store.close()
