"""What part of a pool's step budget and caps each worker may use. Pure; no clock.

The budget is a replica's, and every worker books on the same replicas without asking the others. So each has a part of
it, and the parts add up to no more than the whole. All have the same, unless some have requests waiting: then those
that have none keep what they hold, a quarter of their part at the least, and the rest is lent to the ones that wait.

Messages take their time. What a worker gives back counts as free when it has said so; what it is given it may use at
once. So the sum holds at each moment, not only in the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_KEPT = 0.25
"""Of an equal part, kept by a worker in which nobody waits, for the next request to be served without delay."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One worker and one pool.

    granted: the greatest part that it may have been told and not have in force yet. part: the one that it said is in
             force. held: what is booked of the whole. waiting: requests in its queue.
    leaving: no new ones come to it.
    """

    granted: float
    part: float
    held: float
    waiting: int
    leaving: bool = False

    @property
    def occupied(self) -> float:
        """What nobody else may use now."""
        done = self.leaving and not self.waiting
        return self.held if done else max(self.granted, self.part, self.held)


def divide(holdings: Mapping[int, Holding]) -> dict[int, float]:
    """The parts to be granted now, by worker; those that are leaving get none and are not named."""
    staying = {key: holding for key, holding in holdings.items() if not holding.leaving}
    if not staying:
        return {}
    wanted = _wanted(staying)
    granted = {key: min(wanted[key], max(each.granted, each.part)) for key, each in staying.items()}
    for key in staying:
        if wanted[key] > granted[key]:
            taken = [max(granted.get(other, 0.0), each.occupied) for other, each in holdings.items() if other != key]
            granted[key] = max(granted[key], min(wanted[key], 1.0 - sum(taken)))
    return granted


@dataclass(frozen=True, slots=True)
class Alone:
    """One worker and the right to run in a pool what costs more than a part. wants: such a one waits there.

    busy: it has the right, or one runs, for all that is known. leaving: no new requests come to it.
    """

    wants: bool
    busy: bool
    leaving: bool = False


def who_alone(last: int, states: Mapping[int, Alone]) -> int | None:
    """The worker that is to have the right now: one at a time, so that two such requests never meet on a replica.

    last: who had it last. None: nobody, until the one that had it has said that it is done. Those who want it take
    turns; it stays where it is while nobody else does.
    """
    in_turn = sorted(states, key=lambda key: (key <= last, key))
    wanting = [key for key in in_turn if states[key].wants and key != last]
    staying = [key for key in in_turn if not states[key].leaving]
    if wanting:
        following = wanting[0]
    elif last in states and (states[last].wants or last in staying):
        following = last
    elif staying:
        following = staying[0]
    else:
        return None
    return None if any(state.busy for key, state in states.items() if key != following) else following


def first_part(holdings: Mapping[int, Holding]) -> float:
    """The part of a worker that begins beside these: an equal one if that is free, and never nothing."""
    equal = 1.0 / (1 + sum(not holding.leaving for holding in holdings.values()))
    return max(_KEPT * equal, min(equal, 1.0 - sum(holding.occupied for holding in holdings.values())))


def _wanted(staying: Mapping[int, Holding]) -> dict[int, float]:
    equal = 1.0 / len(staying)
    hungry = [key for key, holding in staying.items() if holding.waiting]
    if not hungry:
        return dict.fromkeys(staying, equal)
    wanted = {
        key: equal if holding.waiting else min(equal, max(_KEPT * equal, holding.held))
        for key, holding in staying.items()
    }
    spare = 1.0 - sum(wanted.values())
    for key in hungry:
        wanted[key] += spare / len(hungry)
    return wanted
