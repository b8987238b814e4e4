"""What a rule may look at: one request after its classification."""

from dataclasses import dataclass

from gateway.hookcost.classification import Classification


@dataclass(init=False)
class RouteRequest:
    """Method and path as the client sent them (the path without its query), and what the body means. Not to be changed.

    Made for every request; see `Features`.
    """

    method: str
    path: str
    classification: Classification

    def __init__(self, method: str, path: str, classification: Classification) -> None:
        self.method = method
        self.path = path
        self.classification = classification
