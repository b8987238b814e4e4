"""What the parts of the proxy ask of each other: one request's next step, whoever has to take it."""

from typing import Protocol

from gateway.breaker.outcome import Outcome
from gateway.call import Attempt, Call
from gateway.routing.replica import Replica
from gateway.routing.router import Decision, Rejection
from gateway.wire.exchange import Exchange
from gateway.wire.message import Reply


class Desk(Protocol):
    """The proxy, as the waiting room and the quarantine know it."""

    def route(self, exchange: Exchange, call: Call) -> None:
        """Decide where it goes, as things are now, and send it there."""

    def send(self, exchange: Exchange, call: Call, replica: Replica) -> None:
        """It is booked on a replica: forward it."""

    def reject(self, exchange: Exchange, decision: Decision, rejection: Rejection) -> None:
        """Answer that nobody can take it."""

    def priority_of(self, tenant: str) -> int:
        """How soon a tenant's turn comes where requests wait: higher goes first."""

    def abort(self, attempt: Attempt) -> None:
        """Tell the engine to drop it."""

    def end_attempt(self, call: Call, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt is over: give back what was booked."""

    def answer(self, exchange: Exchange, decision: Decision, reply: Reply) -> None:
        """Answer for a pool that was chosen, with the headers that say so."""
