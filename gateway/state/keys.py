"""The names of what is kept in Redis; `scripts.py` says what each holds."""

from dataclasses import dataclass

from gateway.state.stored import to_bytes


@dataclass(frozen=True, slots=True)
class Keys:
    """Names under one prefix. A kind's own are in one slot of a cluster, by the tag in braces."""

    prefix: str

    @property
    def channel(self) -> bytes:
        """Where changes of all kinds are told."""
        return to_bytes(f"{self.prefix}:changes")

    @property
    def instance(self) -> bytes:
        """Which server grants leases."""
        return to_bytes(f"{{{self.prefix}:leases}}:instance")

    def lease(self, key: str) -> bytes:
        """One lease."""
        return to_bytes(f"{{{self.prefix}:leases}}:{key}")

    def records(self, kind: str) -> bytes:
        """All records of a kind."""
        return to_bytes(f"{{{self.prefix}:{kind}}}:records")

    def counters(self, kind: str) -> bytes:
        """Which keys have counters."""
        return to_bytes(f"{{{self.prefix}:{kind}}}:counters")

    def counter(self, kind: str, key: str) -> bytes:
        """The counters of one key."""
        return to_bytes(f"{{{self.prefix}:{kind}}}:counters:{key}")

    def batch(self, kind: str, origin: str) -> bytes:
        """How far one gateway's counts are delivered."""
        return to_bytes(f"{{{self.prefix}:{kind}}}:batch:{origin}")
