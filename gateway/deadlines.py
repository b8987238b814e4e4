"""Requests that may take only so long, by their route or by what their clients say, and what happens when that is over.

Made only where some route or header sets a deadline. Counts from the request's head to the last byte of its answer,
whatever it waits for: its body, room on a replica, retries, tokens.
"""

import math
from collections.abc import Callable
from functools import partial

import structlog

from gateway.call import Call, Timing
from gateway.control.tally import Tally
from gateway.desk import Desk
from gateway.retry.alarms import Alarms
from gateway.retry.deadline import DeadlineHeader
from gateway.retry.plan import Plans
from gateway.routing.router import Decision
from gateway.wire.exchange import Exchange
from gateway.wire.failure import Failure, FailureKind

log = structlog.get_logger("steplane.proxy")


class Deadlines:
    """See the module."""

    def __init__(self, desk: Desk, plans: Plans, alarms: Alarms, tally: Tally, clock: Callable[[], float]) -> None:
        self._desk = desk
        self._plans = plans
        self._header: DeadlineHeader | None = plans.deadline_header
        self._alarms = alarms
        self._tally = tally
        self._clock = clock

    def begin(self, exchange: Exchange, call: Call, decision: Decision) -> None:
        """Set a request's deadline, once: the earlier one of its route's and its client's."""
        timing = call.timing
        pool = decision.pool
        if pool is None or (timing is not None and timing.deadline is not None):
            return
        seconds = self._plans.of(decision.rule, pool.name).deadline_s
        header = self._header
        value = None if header is None else exchange.head.header(header.name)
        said = None if header is None or value is None else header.seconds(value)
        if seconds is None or (said is not None and said < seconds):
            seconds = said
        if seconds is None:
            return
        if timing is None:
            timing = call.timing = Timing()
        timing.until_s = exchange.started_at + seconds
        timing.deadline = self._alarms.set(timing.until_s, partial(self._passed, exchange, call, pool.name, seconds))

    def passed_on(self, call: Call, lines: bytes) -> bytes:
        """`lines` of a request's head, each ended by CRLF, with what is left in the place of what the client said."""
        timing, header = call.timing, self._header
        if header is None or timing is None or timing.until_s == math.inf:
            return lines
        name = header.name + b":"
        others = [line for line in lines.split(b"\r\n") if line[: len(name)].lower() != name]
        return b"\r\n".join(others) + header.line(timing.until_s - self._clock())

    def _passed(self, exchange: Exchange, call: Call, pool: str, seconds: float) -> None:
        self._tally.deadlines_exceeded[pool] += 1
        detail = f"the request was not answered within the {seconds:g} s that it had"
        self._desk.end(exchange, call, Failure(FailureKind.deadline_exceeded, detail))
