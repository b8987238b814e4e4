"""How much prompt a body carries and how many prompts: bytes and counts, never the meaning of the text."""

from collections.abc import Iterable


def text_bytes(text: str) -> int:
    """UTF-8 bytes of `text`; free for ASCII."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def content_bytes(content: object) -> int:
    """Text bytes of a message's content: a string, or a list of parts of which only text parts count."""
    if isinstance(content, str):
        return text_bytes(content)
    total = 0
    if isinstance(content, list):
        for part in content:
            if isinstance(part, dict):
                text = part.get("text")
                if isinstance(text, str):
                    total += text_bytes(text)
            elif isinstance(part, str):
                total += text_bytes(part)
    return total


def messages_bytes(messages: object) -> int:
    """Text bytes of a list of chat messages; whatever has another shape counts nothing and is left to the engine."""
    if isinstance(messages, str):
        return text_bytes(messages)
    total = 0
    if isinstance(messages, list):
        for message in messages:
            if isinstance(message, dict):
                total += content_bytes(message.get("content"))
            elif isinstance(message, list):  # vLLM's batch endpoint: a list of conversations
                total += messages_bytes_of_batch(message)
    return total


def messages_bytes_of_batch(conversation: Iterable[object]) -> int:
    """Text bytes of one conversation of a batch."""
    return sum(content_bytes(m.get("content")) for m in conversation if isinstance(m, dict))


BYTES_PER_TOKEN = 4
"""The usual ratio, for prompts that come as token ids."""


def prompts_of(value: object) -> tuple[int, int]:
    """Number of prompts and their bytes, for a field that holds a text, token ids, or a list of either."""
    if isinstance(value, str):
        return 1, text_bytes(value)
    if not isinstance(value, list) or not value:
        return 1, 0
    first = value[0]
    if isinstance(first, str):
        return len(value), sum(text_bytes(item) for item in value if isinstance(item, str))
    if isinstance(first, list) and not (first and isinstance(first[0], float)):
        return len(value), sum(len(item) for item in value if isinstance(item, list)) * BYTES_PER_TOKEN
    return 1, len(value) * BYTES_PER_TOKEN
