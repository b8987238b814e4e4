"""What a rule may look at: one request after its classification."""

from dataclasses import dataclass

from gateway.hookcost.classification import Classification
from gateway.routing.head import Head


@dataclass(init=False)
class RouteRequest:
    """Method and path as the client sent them (the path without its query), and what the body means. Not to be changed.

    tenant: whose request it is, "" for nobody's.
    pools:  the pools that its tenant may use; None: any. Written by whoever lets it in.
    head:   its headers and its query, for the rules that ask for them; None on paper, and there they are absent.
    turns:  which shares have taken it or left it (share.py, whose it is to write); None before one was asked.

    Made for every request; see `Features`.
    """

    method: str
    path: str
    classification: Classification
    tenant: str
    head: Head | None
    pools: frozenset[str] | None
    turns: dict[object, bool] | None

    def __init__(
        self,
        method: str,
        path: str,
        classification: Classification,
        tenant: str = "",
        head: Head | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.classification = classification
        self.tenant = tenant
        self.head = head
        self.pools = None
        self.turns = None
