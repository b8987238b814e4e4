"""One engine server that was found."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Member:
    """Where it is.

    url:    `http://host:port`.
    name:   what the source calls it; None where it only has an address.
    weight: its share beside others, None where the source does not say. zone: "" likewise.
    """

    url: str
    name: str | None = None
    weight: float | None = None
    zone: str = ""


Found = Callable[[Sequence[Member]], Awaitable[None]]
"""Is told the whole set; called again when there is another one."""
Failed = Callable[[str | None], None]
"""Is told why the set is not known at the moment, None when it is again. Meanwhile it stays as it was."""


class Producer(Protocol):
    """Finds members until it is cancelled. Raises nothing else: what goes wrong is told, and tried again."""

    async def run(self, found: Found, failed: Failed) -> None: ...


def url_of(scheme: str, host: str, port: int) -> str:
    """The URL of a server; an IPv6 address stands in brackets."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
