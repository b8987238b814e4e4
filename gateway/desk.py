"""What the parts of the proxy ask of each other: one request's next step, whoever has to take it."""

from typing import Protocol

from gateway.breaker.outcome import Outcome
from gateway.call import Attempt, Call
from gateway.routing.replica import Replica
from gateway.routing.router import Decision, Rejection
from gateway.wire.exchange import Exchange
from gateway.wire.failure import Failure
from gateway.wire.message import Reply
from gateway.wire.race import Racer


class Desk(Protocol):
    """The proxy, as the waiting room and the quarantine know it."""

    def route(self, exchange: Exchange, call: Call, failure: Failure | None = None) -> None:
        """Decide where it goes, as things are now, and send it there.

        failure: of the attempt before, which is the answer where nobody else is left.
        """

    def ask_again(self, call: Call) -> None:
        """Some time has passed: see whether it is quarantined now."""

    def send(self, exchange: Exchange, call: Call, replica: Replica) -> None:
        """It is booked on a replica: forward it."""

    def reject(self, exchange: Exchange, decision: Decision, rejection: Rejection) -> None:
        """Answer that nobody can take it."""

    def priority_of(self, tenant: str) -> int:
        """How soon a tenant's turn comes where requests wait: higher goes first."""

    def abort(self, attempt: Attempt) -> None:
        """Tell the engine to drop it."""

    def race(self, exchange: Exchange, call: Call, replica: Replica, racer: Racer) -> Attempt:
        """It is booked on a second replica: send it there by `racer`."""

    def listen(self, exchange: Exchange, call: Call, attempt: Attempt) -> None:
        """Tell those who want to hear of it of every read of the attempt's answer."""

    def note_failure(self, attempt: Attempt, failure: Failure) -> None:
        """An attempt has failed on the wire: say so to all whom it concerns."""

    def stop_hedge(self, call: Call) -> None:
        """End what runs beside the first attempt, if anything does."""

    def end(self, exchange: Exchange, call: Call, failure: Failure) -> None:
        """Its time is over, wherever it is: end it here and at its engine."""

    def end_attempt(self, call: Call, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt is over: give back what was booked."""

    def answer(self, exchange: Exchange, decision: Decision, reply: Reply) -> None:
        """Answer for a pool that was chosen, with the headers that say so."""
