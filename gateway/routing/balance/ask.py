"""One request, as a balancer may look at it. Made only for pools that have a balancer."""

from collections.abc import Sequence

from gateway.hookcost.classification import Classification


class Ask:
    """What a request brings that may speak for one replica or another. Not to be changed.

    classification: what its body means.
    body:           its bytes; empty where it streams through.
    headers:        of its head, names in lower case, each with its value.
    """

    __slots__ = ("body", "classification", "headers")

    def __init__(
        self, classification: Classification, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        self.classification = classification
        self.body = body
        self.headers = headers
