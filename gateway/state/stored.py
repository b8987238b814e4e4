"""A record as Redis keeps it: its parts and their byte form, which `scripts.py` reads and writes as well."""

from dataclasses import dataclass

NO_CHANGE = "-"
"""Stands for "no change", where the token of a change is expected."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A record with what is needed to tell which of two came of which.

    version:     grows with each change.
    fence:       version that the last force among its changes gave it; 0 if nothing was forced.
    fence_token: that force; `NO_CHANGE` if nothing was forced.
    token:       the last change. Each change by each gateway has a token of its own.
    expires_ms:  Redis' wall clock at which it is forgotten; 0: never.
    """

    version: int
    fence: int
    fence_token: str
    token: str
    expires_ms: int
    value: bytes

    def is_expired(self, now_ms: float) -> bool:
        """Whether Redis' wall clock has passed its time."""
        return 0 < self.expires_ms <= now_ms


def pack(stored: Stored) -> bytes:
    """The byte form of a record, which `unpack` reads."""
    head = f"{stored.version} {stored.fence} {stored.fence_token} {stored.token} {stored.expires_ms}\n"
    return head.encode() + stored.value


def unpack(packed: bytes) -> Stored:
    """A record from its byte form: a line of its five numbers and tokens, then the value. Raises ValueError."""
    head, newline, value = packed.partition(b"\n")
    parts = head.split(b" ")
    if not newline or len(parts) != 5:
        raise ValueError(f"not a record of shared state: {packed[:60]!r}; is something else using this key prefix?")
    version, fence, fence_token, token, expires_ms = parts
    return Stored(int(version), int(fence), fence_token.decode(), token.decode(), int(expires_ms), value)


def to_bytes(name: str) -> bytes:
    """A key or kind as Redis gets it. Takes any string, lone surrogates included."""
    return name.encode("utf-8", "surrogatepass")


def to_name(raw: bytes) -> str:
    """The reverse of `to_bytes`. Raises ValueError."""
    return raw.decode("utf-8", "surrogatepass")
