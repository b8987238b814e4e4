import pytest

from gateway.breaker.outcome import Outcome, outcome_of_failure, outcome_of_response
from gateway.wire.failure import FailureKind

OVER = b'{"object":"error","message":"step_budget_exceeded: hooks of one step took 120 ms","code":503}'


@pytest.mark.parametrize(
    ("status", "tail", "outcome"),
    [
        (200, b'{"choices":[{"finish_reason":"stop"}]}', Outcome.ok),
        (204, b"", Outcome.ok),
        (307, b"", Outcome.ok),
        (200, b"data: [DONE]\n\n", Outcome.ok),
        (400, b'{"message":"Duplicate request ID"}', Outcome.client_fault),
        (401, b"", Outcome.client_fault),
        (404, b"", Outcome.client_fault),
        (422, b"", Outcome.client_fault),
        (429, b"", Outcome.back_pressure),
        (503, b'{"message":"The request queue is full"}', Outcome.back_pressure),
        (503, b"", Outcome.back_pressure),
        (503, OVER, Outcome.over_budget),
        (400, OVER, Outcome.over_budget),  # a grammar that was not compiled in time
        (500, b"", Outcome.fault),
        (501, b"", Outcome.fault),
        (502, b"bad gateway", Outcome.fault),
        (504, b"", Outcome.fault),
        (500, OVER, Outcome.over_budget),
    ],
)
def test_an_answer_is_judged_by_its_status(status: int, tail: bytes, outcome: Outcome) -> None:
    assert outcome_of_response(status, tail) is outcome


@pytest.mark.parametrize(
    ("tail", "outcome"),
    [
        # SGLang: an error event, then the end of the stream.
        (
            b'data: {"error": {"object": "error", "message": "x", "code": 400}}\n\ndata: [DONE]\n\n',
            Outcome.client_fault,
        ),
        (b'data: {"error":{"message":"x","code":500}}\n\ndata: [DONE]\n\n', Outcome.fault),
        (b'data: {"error":{"message":"queue is full","code":503}}\n\n', Outcome.back_pressure),
        (b'data: {"error":{"message":"step_budget_exceeded: x","code":503}}\n\n', Outcome.over_budget),
        (b'{"meta_info":{"finish_reason":{"type":"abort","message":"x","status_code":500}}}', Outcome.fault),
        # vLLM: an abort with a stop reason.
        (b'{"finish_reason":"abort","stop_reason":"step_budget_exceeded: x"}', Outcome.over_budget),
        # Somebody asked for the abort, or nobody says who is to blame.
        (b'{"finish_reason":"abort"}', Outcome.unknown),
        (b'data: {"type":"error","error":{"type":"api_error","message":"x"}}\n\n', Outcome.unknown),
        # Words of the model, not of the engine.
        (b'{"content":"step_budget_exceeded"}', Outcome.ok),
        (rb'{"content":"{\"error\": {\"code\": 500}}"}', Outcome.ok),
        (rb'{"content":"\"abort\" step_budget_exceeded"}', Outcome.ok),
        (b'{"error":null,"code":500}', Outcome.ok),
        (b'{"code":500}', Outcome.ok),
    ],
)
def test_a_stream_that_began_well_is_judged_by_the_error_that_ends_it(tail: bytes, outcome: Outcome) -> None:
    assert outcome_of_response(200, tail) is outcome


def test_only_the_end_of_a_body_is_looked_at() -> None:
    assert outcome_of_response(200, b'{"error":{"code":500}}' + b" " * 5000) is Outcome.ok


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (FailureKind.connect_failed, Outcome.unreachable),
        (FailureKind.connect_timeout, Outcome.unreachable),
        (FailureKind.pool_full, Outcome.back_pressure),
        (FailureKind.stale, Outcome.unknown),
        (FailureKind.closed_early, Outcome.fault),
        (FailureKind.first_byte_timeout, Outcome.fault),
        (FailureKind.bad_response, Outcome.fault),
        (FailureKind.died, Outcome.fault),
        (FailureKind.idle_timeout, Outcome.fault),
    ],
)
def test_a_failure_on_the_wire_speaks_against_the_replica_unless_it_is_nobodys_fault(
    kind: FailureKind, outcome: Outcome
) -> None:
    assert outcome_of_failure(kind) is outcome


def test_every_failure_of_the_wire_has_its_place() -> None:
    places = {Outcome.unreachable, Outcome.back_pressure, Outcome.unknown, Outcome.fault}
    assert {outcome_of_failure(kind) for kind in FailureKind} == places


@pytest.mark.parametrize(
    ("outcome", "against_replica"),
    [
        (Outcome.ok, False),
        (Outcome.client_fault, False),
        (Outcome.back_pressure, False),
        (Outcome.over_budget, False),
        (Outcome.unreachable, True),
        (Outcome.fault, True),
        (Outcome.unknown, False),
    ],
)
def test_an_outcome_says_whether_it_speaks_against_its_replica(outcome: Outcome, against_replica: bool) -> None:
    assert outcome.speaks_against_replica is against_replica
