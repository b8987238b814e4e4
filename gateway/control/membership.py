"""What the admin port asks of the fleet: who is of a pool, and the changes that people make by hand."""

from typing import Literal, Protocol

from gateway.control.config import ReplicaConfig
from gateway.routing.replica import Replica

Source = Literal["file", "discovered", "added"]
"""Who names a replica: the configuration, discovery, or people by the API."""


class MembershipError(Exception):
    """A change that can't be made; `code` is for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Membership(Protocol):
    """The fleet, as people see it. Each change raises MembershipError where it can't be made."""

    def source(self, replica: Replica) -> Source:
        """Who names a replica."""

    async def add(self, pool: str, wanted: ReplicaConfig) -> Replica:
        """One more replica, or one again that was removed by hand."""

    async def remove(self, name: str) -> Replica:
        """Take a replica out: nothing new is sent there, what runs is finished."""

    def drain(self, name: str) -> Replica:
        """Send nothing new to a replica; what runs there is finished."""

    def undrain(self, name: str) -> Replica:
        """Send requests to a replica again."""
