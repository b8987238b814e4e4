"""Which failures may be tried again, and what a client is told of the others."""

import pytest

from gateway.wire.failure import Failure, FailureKind

TABLE = {
    FailureKind.connect_failed: (True, 502),
    FailureKind.connect_timeout: (True, 504),
    FailureKind.pool_full: (True, 503),
    FailureKind.exhausted: (True, 503),
    FailureKind.draining: (False, 503),
    FailureKind.stale: (True, 502),
    FailureKind.closed_early: (True, 502),
    FailureKind.first_byte_timeout: (False, 504),
    FailureKind.bad_response: (False, 502),
    FailureKind.died: (False, 502),
    FailureKind.idle_timeout: (False, 504),
    FailureKind.ended: (False, 502),
    FailureKind.deadline_exceeded: (False, 504),
}


@pytest.mark.parametrize("kind", FailureKind)
def test_each_failure_is_repeatable_or_not_and_has_a_status(kind: FailureKind) -> None:
    failure = Failure(kind, "the upstream failed")
    assert (failure.repeatable, failure.status) == TABLE[kind]
