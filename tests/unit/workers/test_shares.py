"""How the step budget of a replica is shared out among workers that can't see each other's bookings."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workers.shares import Alone, Holding, divide, first_part, who_alone

IDLE = Holding(granted=0.5, part=0.5, held=0.0, waiting=0)


@pytest.mark.parametrize(
    ("holdings", "parts"),
    [
        # Nobody waits: all have the same.
        ([IDLE, IDLE], [0.5, 0.5]),
        # Everybody waits: all have the same.
        ([replace(IDLE, waiting=3), replace(IDLE, waiting=1)], [0.5, 0.5]),
        # One waits: the other is told to give first, and what it gives is not yet granted.
        ([replace(IDLE, waiting=3, held=0.5), IDLE], [0.5, 0.125]),
        # It has given.
        (
            [replace(IDLE, waiting=3, held=0.5), Holding(granted=0.125, part=0.125, held=0.0, waiting=0)],
            [0.875, 0.125],
        ),
        # It keeps what it holds.
        (
            [replace(IDLE, waiting=3, held=0.5), Holding(granted=0.3, part=0.3, held=0.3, waiting=0)],
            [0.7, 0.3],
        ),
        # The one that waited waits no more: what it was lent goes back first.
        (
            [Holding(0.875, 0.875, 0.6, 0), Holding(0.125, 0.125, 0.1, 0)],
            [0.5, 0.125],
        ),
        # One that is leaving gives room as its requests end, and is given nothing.
        ([replace(IDLE, granted=0.25, part=0.25), Holding(0.5, 0.5, 0.4, 0, leaving=True)], [0.6]),
    ],
)
def test_who_waits_is_lent_what_the_others_have_given_back(holdings: list[Holding], parts: list[float]) -> None:
    assert divide(dict(enumerate(holdings))) == pytest.approx(dict(enumerate(parts)))


@pytest.mark.parametrize(
    ("holdings", "part"),
    [
        ([], 1.0),
        ([IDLE], 0.5),
        ([Holding(1.0, 1.0, 0.0, 0)], 0.125),
        ([replace(IDLE, held=0.3, leaving=True), replace(IDLE, held=0.1, leaving=True)], 0.6),
    ],
)
def test_a_worker_begins_with_what_is_free_but_never_with_nothing(holdings: list[Holding], part: float) -> None:
    assert first_part(dict(enumerate(holdings))) == pytest.approx(part)


EVENTS = st.lists(
    st.tuples(st.sampled_from(["want", "done", "hear", "report"]), st.integers(0, 3), st.floats(0.0, 1.0)),
    max_size=60,
)


@given(workers=st.integers(2, 4), events=EVENTS)
def test_whenever_messages_come_what_is_booked_stays_within_the_budget(
    workers: int, events: list[tuple[str, int, float]]
) -> None:
    """Each worker books up to the part that it has heard of; what is said is heard in order, but late."""
    known = {key: Holding(1 / workers, 1 / workers, 0.0, 0) for key in range(workers)}
    sent: dict[int, list[float]] = {key: [1 / workers] for key in range(workers)}
    heard = dict.fromkeys(range(workers), 1)
    booked = dict.fromkeys(range(workers), 0.0)
    waiting = dict.fromkeys(range(workers), 0)
    for event, number, amount in events:
        key = number % workers
        in_force = sent[key][heard[key] - 1]
        match event:
            case "want":
                fits = booked[key] + amount <= in_force
                booked[key] += amount if fits else 0.0
                waiting[key] = 0 if fits else 1
            case "done":
                booked[key] = 0.0
            case "hear":
                heard[key] = min(heard[key] + 1, len(sent[key]))
            case "report":
                caught_up = heard[key] == len(sent[key])
                ceiling = sent[key][-1] if caught_up else known[key].granted
                known[key] = Holding(ceiling, in_force, booked[key], waiting[key])
                for each, part in divide(known).items():
                    if part != sent[each][-1]:
                        sent[each].append(part)
                        known[each] = replace(known[each], granted=max(known[each].granted, part))
        assert sum(booked.values()) <= 1.0 + 1e-9


FREE, WANTS = Alone(wants=False, busy=False), Alone(wants=True, busy=False)


@pytest.mark.parametrize(
    ("last", "states", "holder"),
    [
        (0, {}, None),
        (0, {1: FREE, 2: FREE}, 1),
        # Whoever has it keeps it while nobody else wants it.
        (2, {1: FREE, 2: Alone(wants=False, busy=True)}, 2),
        (2, {1: FREE, 2: Alone(wants=True, busy=True)}, 2),
        # Somebody else does: first it has to be given back.
        (2, {1: WANTS, 2: Alone(wants=True, busy=True)}, None),
        (2, {1: WANTS, 2: WANTS}, 1),
        # In turn.
        (1, {1: WANTS, 2: FREE, 3: WANTS, 4: WANTS}, 3),
        (4, {1: WANTS, 2: WANTS, 4: WANTS}, 1),
        # One that is leaving finishes what waits there, and keeps nothing beyond that.
        (1, {1: replace(WANTS, leaving=True), 2: FREE}, 1),
        (1, {1: replace(FREE, leaving=True), 2: FREE}, 2),
        (1, {1: Alone(wants=False, busy=True, leaving=True), 2: WANTS}, None),
        # One that had it is gone.
        (1, {2: FREE, 3: FREE}, 2),
    ],
)
def test_one_worker_at_a_time_may_run_what_is_more_than_a_part(
    last: int, states: dict[int, Alone], holder: int | None
) -> None:
    assert who_alone(last, states) == holder


@given(
    workers=st.integers(2, 4),
    events=st.lists(st.tuples(st.sampled_from(["want", "done", "hear", "report"]), st.integers(0, 3)), max_size=80),
)
def test_whenever_messages_come_no_two_workers_run_such_a_request(workers: int, events: list[tuple[str, int]]) -> None:
    sent: dict[int, list[bool]] = {key: [False] for key in range(1, workers + 1)}
    heard = dict.fromkeys(sent, 1)
    runs, wants = dict.fromkeys(sent, False), dict.fromkeys(sent, False)
    reported = dict.fromkeys(sent, (False, False, 1))
    last = 0
    for event, number in events:
        key = number % workers + 1
        may = sent[key][heard[key] - 1]
        match event:
            case "want":
                runs[key], wants[key] = runs[key] or may, not may
            case "done":
                runs[key] = False
            case "hear":
                heard[key] = min(heard[key] + 1, len(sent[key]))
            case "report":
                reported[key] = (wants[key], may or runs[key], heard[key])
                states = {
                    each: Alone(wanting, busy=sent[each][-1] or has or by != len(sent[each]))
                    for each, (wanting, has, by) in reported.items()
                }
                holder = who_alone(last, states)
                last = holder or last
                for each, told in sent.items():
                    if told[-1] != (each == holder):
                        told.append(each == holder)
        assert sum(runs.values()) <= 1
