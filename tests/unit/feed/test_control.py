"""Without a recorder somebody is blamed only if plain streams are slow while it runs, and only then."""

import random
from collections.abc import Callable

import pytest

from gateway.feed.itl import Gaps, ReplicaItl
from gateway.hookcost.observation import StepObservation
from tests.unit.feed.attempts import Attempt, attempt

BOMB, CAKE = "s1-bomb", "s1-cake"


class Street:
    """A replica on a clock of its own: streams come and go, and every step brings each of them a chunk.

    step_s: how long a step takes, by how many plain streams and which suspects run.
    """

    def __init__(self, seed: int, step_s: Callable[[int, list[str]], float]) -> None:
        self.now_s = 1000.0
        self.itl = ReplicaItl(lambda: self.now_s)
        self.itl.switch(True)
        self.told: list[StepObservation] = []
        self.suspects: list[Attempt] = []
        self._plain: list[tuple[Attempt, Gaps | None]] = []
        self._random = random.Random(seed)
        self._step_s = step_s
        self._asked_s = self.now_s

    def plain(self, count: int) -> None:
        """So many plain streams run from now on."""
        while len(self._plain) < count:
            each = attempt("plain", "s1-plain", costly=False)
            self._plain.append((each, self.itl.began(each, streams=True)))
        while len(self._plain) > count:
            self.itl.ended(*self._plain.pop(0))

    def begins(self, signature: str) -> None:
        self.suspects.append(attempt(signature, signature))
        assert self.itl.began(self.suspects[-1], streams=True) is None

    def ends(self, signature: str) -> None:
        found = next(each for each in self.suspects if each.origin.signature == signature)
        self.suspects.remove(found)
        self.itl.ended(found, None)

    def runs(self, seconds: float, slower: float = 1.0) -> None:
        """Steps go by; `slower`: by somebody that nobody here can see."""
        until = self.now_s + seconds
        while self.now_s < until:
            step_s = self._step_s(len(self._plain), [each.origin.signature for each in self.suspects])
            self.now_s += step_s * slower * self._random.lognormvariate(0.0, 0.15)
            if self._random.random() < 0.02:  # somebody's prefill
                self.now_s += self._random.uniform(0.0, 0.2)
            for _, gaps in self._plain:
                if gaps is not None:
                    gaps.chunk(self.now_s)
            if self.now_s - self._asked_s >= 1.0:
                self._asked_s = self.now_s
                self.told += self.itl.evidence(self.now_s)

    @property
    def blamed(self) -> set[str]:
        return {seen.origin.signature for seen in self.told}


def ten_ms(plain: int, suspects: list[str]) -> float:
    return 0.010


def bombed(plain: int, suspects: list[str]) -> float:
    return 0.010 + 0.040 * suspects.count(BOMB)


@pytest.mark.parametrize("seed", range(5))
def test_a_signature_that_slows_plain_streams_whenever_it_runs_is_blamed_with_its_excess(seed: int) -> None:
    street = Street(seed, bombed)
    street.plain(6)
    for _ in range(5):
        street.runs(3)
        street.begins(BOMB)
        street.runs(4)
        street.ends(BOMB)
    assert street.blamed == {BOMB}
    for seen in street.told:
        assert seen.own_us == pytest.approx(40_000, rel=0.25)
        assert seen.kinds == {"itl": seen.own_us}
    # As often as a breaker can use it, not at every chunk.
    assert len(street.told) <= 12


def test_several_requests_of_one_signature_share_the_blame() -> None:
    street = Street(1, bombed)
    street.plain(6)
    for _ in range(5):
        street.runs(3)
        street.begins(BOMB)
        street.begins(BOMB)
        street.runs(5)
        street.ends(BOMB)
        street.ends(BOMB)
    assert [seen.own_us for seen in street.told] == [pytest.approx(40_000, rel=0.25)] * len(street.told)
    assert street.told


@pytest.mark.parametrize("seed", range(20))
def test_a_signature_that_costs_nothing_is_never_blamed(seed: int) -> None:
    street = Street(seed, ten_ms)
    street.plain(6)
    for _ in range(10):
        street.runs(2)
        street.begins(CAKE)
        street.runs(2)
        street.ends(CAKE)
    assert street.blamed == set()


@pytest.mark.parametrize("seed", range(5))
def test_a_replica_that_gets_slow_once_blames_nobody_who_happened_to_begin_then(seed: int) -> None:
    street = Street(seed, ten_ms)
    street.plain(6)
    street.runs(20)
    street.begins(CAKE)
    street.runs(60, slower=5.0)
    street.ends(CAKE)
    street.runs(20, slower=5.0)
    street.begins(CAKE)
    street.runs(20, slower=5.0)
    assert street.blamed == set()


@pytest.mark.parametrize("seed", range(5))
def test_more_concurrency_is_not_the_fault_of_those_who_come_with_it(seed: int) -> None:
    street = Street(seed, lambda plain, suspects: 0.005 + 0.004 * plain)
    for _ in range(6):
        street.plain(3)
        street.runs(3)
        street.plain(24)
        street.begins(CAKE)
        street.runs(4)
        street.ends(CAKE)
    assert street.blamed == set()


@pytest.mark.parametrize("seed", range(5))
def test_who_runs_beside_another_suspect_is_not_blamed_for_what_that_one_does(seed: int) -> None:
    street = Street(seed, bombed)
    street.plain(6)
    for _ in range(6):
        street.runs(3)
        street.begins(BOMB)
        street.begins(CAKE)
        street.runs(4)
        street.ends(BOMB)
        street.runs(1)
        street.ends(CAKE)
    assert street.blamed == set()


def test_three_slow_times_are_a_coincidence_and_four_are_not() -> None:
    street = Street(3, bombed)
    street.plain(6)
    for _ in range(3):
        street.runs(3)
        street.begins(BOMB)
        street.runs(10)
        street.ends(BOMB)
    street.runs(3)
    assert street.blamed == set()
    street.begins(BOMB)
    street.runs(4)
    assert street.blamed == {BOMB}


def test_without_plain_streams_nothing_is_known() -> None:
    street = Street(1, bombed)
    for _ in range(4):
        street.runs(3)
        street.begins(BOMB)
        street.runs(3)
        street.ends(BOMB)
    assert street.told == []
    assert street.itl.median_us() is None
    assert not street.itl.speaks(street.now_s)


def test_what_was_minutes_ago_proves_nothing_now() -> None:
    street = Street(1, bombed)
    street.plain(6)
    street.runs(3)
    street.begins(BOMB)
    street.runs(4)
    street.ends(BOMB)
    street.runs(3)
    street.plain(0)
    street.now_s += 600.0
    street.plain(6)
    street.begins(BOMB)
    street.runs(4)
    assert street.told == []


def test_a_few_streams_are_timed_whatever_their_number() -> None:
    itl = ReplicaItl(lambda: 0.0)
    itl.switch(True)
    attempts = [attempt(costly=False) for _ in range(50)]
    timed = [itl.began(each, streams=True) for each in attempts]
    assert sum(gaps is not None for gaps in timed) == 4
    assert itl.began(attempt(costly=False), streams=False) is None
    for each, gaps in zip(attempts, timed, strict=True):
        itl.ended(each, gaps)
    assert itl.began(attempt(costly=False), streams=True) is not None


def test_who_runs_already_when_the_control_begins_is_suspect_too() -> None:
    now = [0.0]
    itl = ReplicaItl(lambda: now[0])
    itl.switch(True, [attempt(signature=BOMB)])
    plain = itl.began(attempt(costly=False), streams=True)
    assert plain is not None
    itl.began(attempt(signature=CAKE), streams=True)
    assert itl.period is None


def test_a_control_that_was_switched_off_knows_nothing_and_says_nothing() -> None:
    street = Street(1, bombed)
    street.plain(4)
    street.runs(5)
    assert street.itl.median_us() == pytest.approx(10_000, rel=0.3)
    assert street.itl.speaks(street.now_s)
    street.itl.switch(False)
    assert street.itl.evidence(street.now_s) == []
    assert street.itl.median_us() is None


def test_signatures_without_number_are_remembered_to_a_bound() -> None:
    now = [0.0]
    itl = ReplicaItl(lambda: now[0])
    itl.switch(True)
    gaps = itl.began(attempt(costly=False), streams=True)
    assert gaps is not None
    for number in range(2000):
        suspect = attempt(signature=f"s1-{number}")
        itl.began(suspect, streams=False)
        for _ in range(20):
            now[0] += 0.001
            gaps.chunk(now[0])
        itl.ended(suspect, None)
    assert len(itl._latest) <= 256
    assert len(itl._control._cells) <= 128
