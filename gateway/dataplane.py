"""What a gateway asks of another data plane than its own, which asks it where requests go and carries them itself."""

from collections.abc import Callable
from typing import Any, Protocol

from gateway.control.config import Config
from gateway.wire.carrier import Carrier


class DataPlane(Carrier, Protocol):
    """In the place of sockets for clients and to replicas; requests that were decided are brought to it."""

    def fit(self, config: Config) -> Config:
        """The configuration without what it can't do."""

    async def start(self, config: Config, protocol: Callable[[str], Any]) -> tuple[str, int]:
        """Take requests, and return from where; `protocol` makes the asyncio protocol of a client at an address.

        Raises OSError."""

    async def drain(self, delay_s: float, within_s: float) -> None:
        """Take requests for `delay_s` more, then finish what runs, `within_s` at most."""

    async def close(self) -> None:
        """Take no more, and end what runs."""
