"""What the rules may ask of this gateway's past: its cost book, its breakers, and the profiles of its tenants."""

from gateway.breaker.trust import Trust
from gateway.hookcost.costbook import CostBook
from gateway.routing.knowledge import NEVER
from gateway.tenants.register import Register


class Insight:
    """A `routing.Knowledge`."""

    def __init__(self, book: CostBook, trust: Trust, tenants: Register) -> None:
        self._entry = book.entry
        self._signatures = trust.barred_signatures
        self._tenants = trust.barred_tenants
        self._profile = tenants.profile

    def observed_step_us(self, signature: str) -> float:
        """Mean hook time per step that was observed of a signature, `NEVER` where none was."""
        entry = self._entry(signature)
        return entry.mean_us if entry is not None and entry.steps else NEVER

    def observed_compile_ms(self, signature: str) -> float:
        """Mean compile time that was observed of a signature, `NEVER` where none was."""
        entry = self._entry(signature)
        return entry.compile_mean_ms if entry is not None and entry.compiles else NEVER

    def is_quarantined(self, signature: str, tenant: str) -> bool:
        """Whether the breaker of the signature, or of the tenant, is not closed."""
        return signature in self._signatures or tenant in self._tenants

    def priority(self, tenant: str) -> int:
        """How soon a tenant's turn comes where requests wait."""
        return self._profile(tenant).priority
