"""What rules may ask of the past: what a signature was observed to cost, and whether it is quarantined.

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


NOTHING_KNOWN: Final = NothingKnown()
