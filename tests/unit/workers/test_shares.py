"""How the step budget of a replica is shared out among workers that can't see each other's bookings."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workers.shares import Holding, divide, first_part

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
