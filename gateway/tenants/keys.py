"""API keys: how one is made, and the digest by which it is known. A key itself is never kept.

Keys are long random strings, so a plain digest is safe: there is nothing to guess.
"""

import re
import secrets
from hashlib import sha256

_PREFIX = "sk-steplane-"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_KEY_LINES = re.compile(rb"^(?:authorization|x-api-key)[ \t]*:[^\n]*\n", re.IGNORECASE | re.MULTILINE)
_BEARER = b"bearer "


def new_key() -> str:
    """A key with 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def digest(key: bytes) -> str:
    """What the configuration says of a key: `sha256:` and 64 hexadecimal digits."""
    return f"sha256:{sha256(key).hexdigest()}"


def is_digest(text: str) -> bool:
    """Whether `text` is spelled as `digest` spells it."""
    return _DIGEST.fullmatch(text) is not None


def without_keys(lines: bytes) -> bytes:
    """Header lines, each ended by CRLF, without those that hold a client's key."""
    return _KEY_LINES.sub(b"", lines)


def authorization(key: str) -> bytes:
    """The header line that shows `key`; nothing for none. Raises ValueError for what can't stand in a header."""
    if not key:
        return b""
    if not (key.isascii() and key.isprintable()):
        raise ValueError("a key of printable ASCII characters")
    return f"authorization: Bearer {key}\r\n".encode()


def bare(value: bytes) -> bytes:
    """The key in a header's value: without the scheme `Bearer`."""
    return value[len(_BEARER) :].strip() if value[: len(_BEARER)].lower() == _BEARER else value.strip()
