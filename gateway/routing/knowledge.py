"""What rules may ask beside the request: what its signature was observed to cost, its quarantine, its tenant's rank.

Routing holds none of it; whoever builds a router hands it in.
"""

from typing import Final, Protocol

NEVER: Final = -1.0
"""Stands for what was never observed."""


class Knowledge(Protocol):
    """Answers at once, from memory."""

    def observed_step_us(self, signature: str) -> float:
        """Mean hook time per step that was observed of a signature, `NEVER` where none was."""

    def observed_compile_ms(self, signature: str) -> float:
        """Mean compile time that was observed of a signature, `NEVER` where none was."""

    def is_quarantined(self, signature: str, tenant: str) -> bool:
        """Whether the breaker of the signature, or of the tenant, is not closed."""

    def priority(self, tenant: str) -> int:
        """How soon a tenant's turn comes where requests wait: higher goes first; 0 where nothing is set."""


class NothingKnown:
    """The knowledge of a gateway that has seen nothing, and of a decision on paper."""

    def observed_step_us(self, signature: str) -> float:  # noqa: ARG002
        """Never."""
        return NEVER

    def observed_compile_ms(self, signature: str) -> float:  # noqa: ARG002
        """Never."""
        return NEVER

    def is_quarantined(self, signature: str, tenant: str) -> bool:  # noqa: ARG002
        """No."""
        return False

    def priority(self, tenant: str) -> int:  # noqa: ARG002
        """Nobody goes first."""
        return 0


NOTHING_KNOWN: Final = NothingKnown()
