"""What a rule may look at: one request after its classification."""

from dataclasses import dataclass

from gateway.hookcost.classification import Classification


@dataclass(slots=True)
class RouteRequest:
    """Method and path as the client sent them (the path without its query), and what the body means.

    Not to be changed; not frozen, because that would triple the time of making one.
    """

    method: str
    path: str
    classification: Classification
