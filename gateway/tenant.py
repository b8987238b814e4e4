"""Whose a request is: the word under which its signatures are counted, never a secret itself."""

from collections.abc import Iterable
from hashlib import sha256

_KEYS = (b"authorization", b"x-api-key")
_LONGEST = 128


class Tenants:
    """Reads the tenant from headers.

    header: a lower-case name; what it says is the tenant. A proxy in front must set it, for a client could say
            anything. Without one, or where it is missing, it is a digest of the API key, and "" without a key.
    """

    def __init__(self, header: str | None = None) -> None:
        self._header = header.lower().encode() if header is not None else b""

    def of(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The tenant that these headers name, "" if they name none."""
        key = b""
        for name, value in headers:
            lower = name.lower()
            if lower == self._header and value:
                return value[:_LONGEST].decode("latin-1")
            if lower in _KEYS and value:
                key = value
        return f"key-{sha256(key).hexdigest()[:16]}" if key else ""
