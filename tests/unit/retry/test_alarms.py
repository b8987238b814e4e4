"""Many alarms ring in the order of their times, on one timer."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gateway.retry.alarms import Alarms


class Loop:
    """A clock and its timers, as an event loop has them; time passes when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []
        self.failed: list[Exception] = []
        self.alarms = Alarms(lambda: self.now_s, self.call_at, self.failed.append)

    def call_at(self, when: float, callback: Callable[[], None]) -> "Timer":
        timer = Timer(self, when, callback)
        self.timers.append(timer)
        return timer

    def run_until(self, end_s: float) -> None:
        while self.timers and (timer := min(self.timers, key=lambda each: each.when)).when <= end_s:
            self.timers.remove(timer)
            self.now_s = max(self.now_s, timer.when)
            timer.callback()
        self.now_s = end_s


class Timer:
    def __init__(self, loop: Loop, when: float, callback: Callable[[], None]) -> None:
        self.loop = loop
        self.when = when
        self.callback = callback

    def cancel(self) -> None:
        self.loop.timers.remove(self)


def test_alarms_ring_in_the_order_of_their_times_whatever_the_order_they_were_set_in() -> None:
    loop, rung = Loop(), list[str]()
    for at_s, name in ((3.0, "c"), (1.0, "a"), (2.0, "b"), (1.0, "a2")):
        loop.alarms.set(at_s, lambda name=name: rung.append(name))  # type: ignore[misc]
    assert len(loop.timers) == 1
    loop.run_until(2.5)
    assert rung == ["a", "a2", "b"]
    assert len(loop.alarms) == 1
    loop.run_until(9.0)
    assert rung[3:] == ["c"]
    assert not loop.timers


def test_a_cancelled_alarm_does_not_ring_and_lets_go_of_what_it_was_to_call() -> None:
    loop, rung = Loop(), list[str]()
    first = loop.alarms.set(1.0, lambda: rung.append("first"))
    second = loop.alarms.set(2.0, lambda: rung.append("second"))
    first.cancel()
    first.cancel()
    assert not first.waits
    assert len(loop.alarms) == 1
    loop.run_until(3.0)
    assert rung == ["second"]
    assert not second.waits
    second.cancel()
    assert len(loop.alarms) == 0


def test_one_that_raises_does_not_keep_the_others_from_ringing() -> None:
    loop, rung = Loop(), list[str]()
    loop.alarms.set(1.0, lambda: 1 // 0)
    loop.alarms.set(1.0, lambda: rung.append("second"))
    loop.run_until(2.0)
    assert rung == ["second"]
    assert [type(error) for error in loop.failed] == [ZeroDivisionError]


def test_an_alarm_may_set_and_cancel_others() -> None:
    loop, rung = Loop(), list[str]()
    other = loop.alarms.set(1.0, lambda: rung.append("other"))

    def ring() -> None:
        other.cancel()
        loop.alarms.set(0.5, lambda: rung.append("late"))

    loop.alarms.set(0.9, ring)
    loop.run_until(2.0)
    assert rung == ["late"]


def test_nothing_rings_after_the_end() -> None:
    loop = Loop()
    loop.alarms.set(1.0, lambda: 1 // 0)
    loop.alarms.close()
    loop.run_until(2.0)
    assert not loop.failed
    assert len(loop.alarms) == 0


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.booleans()), max_size=300))
def test_what_was_not_cancelled_rings_once_and_in_time(entries: list[tuple[float, bool]]) -> None:
    loop, rung = Loop(), list[float]()
    alarms = [loop.alarms.set(at_s, lambda at_s=at_s: rung.append(at_s)) for at_s, _ in entries]  # type: ignore[misc]
    for alarm, (_, cancelled) in zip(alarms, entries, strict=True):
        if cancelled:
            alarm.cancel()
    kept = sorted(at_s for at_s, cancelled in entries if not cancelled)
    assert len(loop.alarms) == len(kept)
    loop.run_until(101.0)
    assert rung == kept
    assert not loop.timers
    assert len(loop.alarms) == 0


def test_those_that_were_cancelled_take_no_place_for_long() -> None:
    loop = Loop()
    for _ in range(10_000):
        loop.alarms.set(50.0, lambda: None).cancel()
    assert len(loop.alarms._heap) < 200
