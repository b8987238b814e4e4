"""What a replica says of when to come back: the header `Retry-After` (RFC 9110 section 10.2.3)."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_LONGEST_DIGITS = 9


def retry_after_s(value: str, now_unix_s: float) -> float | None:
    """Seconds from now, at least 0; None for what is neither a number of seconds nor a date."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:_LONGEST_DIGITS]) if len(value) <= _LONGEST_DIGITS else float(10**_LONGEST_DIGITS)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.fromtimestamp(now_unix_s, UTC)).total_seconds())


def header_of(message: bytes, name: bytes) -> str | None:
    """The first value of a header in the head of a response, by its lower-case name."""
    head, _, _ = message.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip(b" \t").decode("latin-1")
    return None
