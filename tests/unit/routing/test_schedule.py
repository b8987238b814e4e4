"""When a rule is in force: hours, days and zones, over midnights and over changes of the clock."""

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.schedule import Hours, Schedule

BERLIN = ZoneInfo("Europe/Berlin")
WEEKDAYS = frozenset(range(5))
ALL = frozenset(range(7))


def at(text: str, zone: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


class Wall:
    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now_s


@pytest.mark.parametrize(
    ("hours", "when", "in_force"),
    [
        (Hours(BERLIN), "2026-11-29T12:00", True),
        (Hours(BERLIN, WEEKDAYS, time(8), time(18)), "2026-11-27T08:00", True),  # a Friday
        (Hours(BERLIN, WEEKDAYS, time(8), time(18)), "2026-11-27T07:59:59", False),
        (Hours(BERLIN, WEEKDAYS, time(8), time(18)), "2026-11-27T17:59:59", True),
        (Hours(BERLIN, WEEKDAYS, time(8), time(18)), "2026-11-27T18:00", False),
        (Hours(BERLIN, WEEKDAYS, time(8), time(18)), "2026-11-28T12:00", False),
        # over midnight: the day is that on which it begins
        (Hours(BERLIN, frozenset({4}), time(22), time(6)), "2026-11-27T23:00", True),
        (Hours(BERLIN, frozenset({4}), time(22), time(6)), "2026-11-28T05:59", True),
        (Hours(BERLIN, frozenset({4}), time(22), time(6)), "2026-11-28T06:00", False),
        (Hours(BERLIN, frozenset({4}), time(22), time(6)), "2026-11-27T05:00", False),
        (Hours(BERLIN, frozenset({4})), "2026-11-27T00:00", True),
        (Hours(BERLIN, frozenset({4})), "2026-11-28T00:00", False),
        # the clock goes from 02:00 to 03:00 on 2026-03-29, and from 03:00 to 02:00 on 2026-10-25
        (Hours(BERLIN, ALL, time(2, 30), time(4)), "2026-03-29T01:59:59", False),
        (Hours(BERLIN, ALL, time(2, 30), time(4)), "2026-03-29T03:00", True),
        (Hours(BERLIN, ALL, time(1), time(2, 30)), "2026-03-29T01:59:59", True),
        (Hours(BERLIN, ALL, time(1), time(2, 30)), "2026-03-29T03:00", False),
        (Hours(BERLIN, ALL, time(8), time(18)), "2026-03-29T08:00", True),
        (Hours(BERLIN, ALL, time(8), time(18)), "2026-10-25T17:59", True),
        (Hours(BERLIN, ALL, time(8), time(18)), "2026-10-25T18:00", False),
    ],
)
def test_a_schedule_is_in_force_as_the_clocks_there_show(hours: Hours, when: str, in_force: bool) -> None:
    assert Schedule(hours, Wall(at(when)))() is in_force


def test_an_hour_that_comes_twice_counts_from_its_first_time_on() -> None:
    hours = Hours(BERLIN, ALL, time(2, 30), time(5))
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=0).timestamp()

    assert not Schedule(hours, Wall(first - 1))()
    assert Schedule(hours, Wall(first))()
    assert Schedule(hours, Wall(first + 3600))()


def test_another_zone_has_another_time() -> None:
    hours = Hours(ZoneInfo("America/New_York"), ALL, time(9), time(17))

    assert not Schedule(hours, Wall(at("2026-11-27T09:30")))()
    assert Schedule(hours, Wall(at("2026-11-27T15:30")))()


def test_it_is_worked_out_again_only_when_it_changes_or_the_clock_is_set_back() -> None:
    wall = Wall(at("2026-11-27T07:00"))
    schedule = Schedule(Hours(BERLIN, WEEKDAYS, time(8), time(18)), wall)

    for when, in_force in (
        ("2026-11-27T07:30", False),
        ("2026-11-27T08:00", True),
        ("2026-11-27T17:59", True),
        ("2026-11-27T07:10", False),
        ("2026-11-27T18:00", False),
        ("2026-11-30T07:59", False),
        ("2026-11-30T08:00", True),
    ):
        wall.now_s = at(when)
        assert schedule() is in_force, when


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
MINUTES = st.integers(0, 24 * 60 - 1).map(lambda minute: time(minute // 60, minute % 60))


@given(
    zone=ZONES,
    days=st.frozensets(st.integers(0, 6), min_size=1),
    start=MINUTES,
    end=MINUTES,
    begin_s=st.integers(1_760_000_000, 1_800_000_000),
    steps=st.lists(st.integers(1, 20_000), max_size=20),
)
def test_what_is_remembered_is_what_would_be_worked_out(
    zone: str, days: frozenset[int], start: time, end: time, begin_s: int, steps: list[int]
) -> None:
    hours = Hours(ZoneInfo(zone), days, start, end)
    wall = Wall(float(begin_s))
    schedule = Schedule(hours, wall)
    for step in steps:
        assert schedule() is Schedule(hours, Wall(wall.now_s))()
        wall.now_s += step


@given(when=st.integers(1_760_000_000, 1_800_000_000), start=MINUTES, end=MINUTES)
def test_in_a_zone_without_summer_time_it_is_plain_arithmetic(when: int, start: time, end: time) -> None:
    now = datetime.fromtimestamp(when, UTC)
    clock = now.time()
    inside = start <= clock < end if end > start else clock >= start or clock < end

    assert Schedule(Hours(ZoneInfo("UTC"), ALL, start, end), Wall(float(when)))() is inside
