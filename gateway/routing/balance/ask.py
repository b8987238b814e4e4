"""One request, as a balancer may look at it. Made only for pools that have a balancer."""

from gateway.hookcost.classification import Classification
from gateway.routing.head import Head


class Ask:
    """What a request brings that may speak for one replica or another. Not to be changed.

    classification: what its body means.
    body:           its bytes; empty where it streams through.
    head:           where its headers are; None: it has none.
    """

    __slots__ = ("body", "classification", "head")

    def __init__(self, classification: Classification, body: bytes = b"", head: Head | None = None) -> None:
        self.classification = classification
        self.body = body
        self.head = head
