"""What a rule's actions change in a request and in its answer: headers of both, and single fields of the body.

Only for requests whose rule has actions. What can be worked out once for a rule or a head is kept.
"""

from collections.abc import Callable

from gateway.call import Call, Edit
from gateway.hookcost import Classification, Classifier
from gateway.hookcost.body import takes_long
from gateway.hookcost.edits import BodyEdits
from gateway.hookcost.features import Api
from gateway.routing.actions import Actions
from gateway.routing.router import Decision
from gateway.wire.exchange import Exchange

_KEPT_HEADS = 256


class Edits:
    """Carries out what rules say. `blended`: counts in what was observed of a request's cost."""

    def __init__(self, classifier: Classifier, blended: Callable[[Classification], Classification]) -> None:
        self._classifier = classifier
        self._blended = blended
        self._dressings: dict[Actions, _Dressing] = {}

    def reconfigure(self, classifier: Classifier) -> None:
        """There are other rules from now on."""
        self._classifier = classifier
        self._dressings.clear()

    def prepare(self, exchange: Exchange, call: Call, decision: Decision) -> bool:
        """Give the call the body that the decision's rule makes of its own; nothing of it may be booked now.

        Whether the request has become another one, of another cost, by that.
        """
        actions = decision.actions
        if call.edit is not None:
            if call.edit.actions is actions:
                return False
            call.edit = None  # another rule takes it now
            call.reckon(call.request.classification)
        if actions is None or not actions.edits_body or not exchange.buffered or call.features.api is Api.other:
            return False
        pool = decision.pool
        engine = pool.replicas[0].engine if pool is not None and pool.replicas else ""
        edited = self._dressing(actions).body.apply(call.features.api, engine, exchange.body)
        if edited is None:
            return False
        line = b"x-steplane-modified: %b\r\n" % ", ".join(edited.changes).encode("ascii", "replace")
        call.edit = Edit(actions, edited.body, line)
        return self._reckon(call, edited.body)

    def head_lines(self, actions: Actions, lines: bytes) -> bytes:
        """The header lines for the replica, from the client's."""
        return self._dressing(actions).head(lines) if actions.edits_head else lines

    def response_lines(self, actions: Actions, call: Call) -> bytes:
        """Further header lines for the client."""
        lines = self._dressing(actions).response
        return lines if call.edit is None else lines + call.edit.line

    def _reckon(self, call: Call, body: bytes) -> bool:
        """Reckon with what the edited body costs. A large one keeps the cost that it came with, which is no less."""
        if takes_long(body):
            return False
        classification = self._classifier.classify(call.request.path, body)
        before = call.classification
        if classification.refusal is not None:
            return False
        call.reckon(self._blended(classification))
        return classification.signature != before.signature

    def _dressing(self, actions: Actions) -> "_Dressing":
        dressing = self._dressings.get(actions)
        if dressing is None:
            dressing = self._dressings[actions] = _Dressing(actions)
        return dressing


class _Dressing:
    """What can be worked out of a rule's actions before any request."""

    __slots__ = ("_gone", "_heads", "_set", "body", "response")

    def __init__(self, actions: Actions) -> None:
        self.body = BodyEdits(actions.caps, actions.strips)
        self.response = _lines(actions.response_headers)
        self._set = _lines(actions.set_headers)
        names = (*actions.strip_headers, *(name for name, _ in actions.set_headers))
        self._gone = frozenset(name.lower().encode() for name in names)
        self._heads: dict[bytes, bytes] = {}

    def head(self, lines: bytes) -> bytes:
        """A head's lines without those that are taken out, and with those that are set."""
        edited = self._heads.get(lines)
        if edited is None:
            kept = [line for line in lines.split(b"\r\n") if line and _name(line) not in self._gone]
            edited = b"".join([line + b"\r\n" for line in kept]) + self._set
            if len(self._heads) >= _KEPT_HEADS:
                self._heads.clear()
            self._heads[lines] = edited
        return edited


def _lines(headers: tuple[tuple[str, str], ...]) -> bytes:
    return b"".join([b"%b: %b\r\n" % (name.encode("ascii"), value.encode("latin-1")) for name, value in headers])


def _name(line: bytes) -> bytes:
    return line.partition(b":")[0].strip().lower()
