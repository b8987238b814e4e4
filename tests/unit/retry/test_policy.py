"""After what a request is tried again, and how soon."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.retry.backoff import BackOff
from gateway.retry.policy import RetryPolicy
from gateway.retry.reason import Reason, reason_of_failure, reason_of_status
from gateway.wire.failure import Failure, FailureKind

REASONS = {
    "connect_failed": Reason.connect,
    "connect_timeout": Reason.connect,
    "pool_full": Reason.connect,
    "exhausted": Reason.connect,
    "stale": Reason.stale,
    "closed_early": Reason.reset,
    "first_byte_timeout": Reason.timeout,
    "bad_response": None,
    "died": None,
    "idle_timeout": None,
    "ended": None,
    "deadline_exceeded": None,
    "draining": None,
}


@pytest.mark.parametrize("kind", list(FailureKind))
def test_each_failure_has_its_reason_or_none(kind: FailureKind) -> None:
    assert reason_of_failure(kind.value) is REASONS[kind.value]


def test_only_what_the_wire_calls_repeatable_is_repeated_by_default() -> None:
    usual = RetryPolicy().on
    for kind in FailureKind:
        assert (reason_of_failure(kind.value) in usual) == Failure(kind, "").repeatable


@pytest.mark.parametrize("status", [200, 400, 404, 408, 422, 501, 505])
def test_an_answer_of_another_status_is_the_answer(status: int) -> None:
    assert reason_of_status(status) is None


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("harmless", [True, False])
def test_what_may_have_been_begun_is_only_repeated_where_that_does_no_harm(reason: Reason, harmless: bool) -> None:
    policy = RetryPolicy(attempts=3, on=frozenset(Reason))
    unprocessed = reason in (Reason.connect, Reason.stale)
    assert policy.allows(reason, 2, harmless=harmless) is (harmless or unprocessed)
    assert not policy.allows(reason, 3, harmless=harmless)
    assert not RetryPolicy(on=frozenset()).allows(reason, 1, harmless=harmless)


@pytest.mark.parametrize(
    ("back_off", "waits"),
    [
        (BackOff(), [0.0, 0.0, 0.0]),
        (BackOff(0.1, 2.0, 1.0, 0.0), [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]),
        (BackOff(0.1, 1.0, 1.0, 0.0), [0.1, 0.1, 0.1]),
        (BackOff(5.0, 2.0, 1.0, 0.0), [1.0, 1.0]),
    ],
)
def test_waits_grow_up_to_a_bound(back_off: BackOff, waits: list[float]) -> None:
    assert [back_off.delay_s(retry, 0.5) for retry in range(1, len(waits) + 1)] == pytest.approx(waits)


@given(
    st.builds(BackOff, st.floats(0.0, 60.0), st.floats(1.0, 1e9), st.floats(0.001, 600.0), st.floats(0.0, 1.0)),
    st.integers(1, 10_000),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_chance_only_shortens_a_wait(back_off: BackOff, retry: int, chance: float) -> None:
    wait_s = back_off.delay_s(retry, chance)
    assert 0.0 <= wait_s <= back_off.max_s
    assert wait_s >= back_off.delay_s(retry, 0.0) * (1.0 - back_off.jitter) - 1e-9
