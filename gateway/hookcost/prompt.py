"""How much prompt a body carries and how many prompts: bytes and counts, never the meaning of the text."""

from collections.abc import Sequence


def text_bytes(text: str) -> int:
    """UTF-8 bytes of `text`; free for ASCII."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def content_bytes(content: object) -> int:
    """Text bytes of a message's content: a string, or a list of parts of which only text parts count."""
    if isinstance(content, str):
        return text_bytes(content)
    if not isinstance(content, list):
        return 0
    return texts_bytes([part.get("text") if isinstance(part, dict) else part for part in content])


def messages_bytes(messages: object) -> int:
    """Text bytes of a list of chat messages; whatever has another shape counts nothing and is left to the engine."""
    if isinstance(messages, str):
        return text_bytes(messages)
    if not isinstance(messages, list):
        return 0
    # vLLM's batch endpoint takes a list of conversations.
    batch = sum([_conversation_bytes(conversation) for conversation in messages if isinstance(conversation, list)])
    return batch + _conversation_bytes(messages)


def _conversation_bytes(messages: list[object]) -> int:
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    return texts_bytes(contents) + sum([content_bytes(content) for content in contents if isinstance(content, list)])


def texts_bytes(texts: Sequence[object]) -> int:
    """UTF-8 bytes of the texts in a list."""
    return text_bytes("".join([text for text in texts if isinstance(text, str)]))


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
        return len(value), texts_bytes(value)
    if isinstance(first, list) and not (first and isinstance(first[0], float)):
        return len(value), sum([len(item) for item in value if isinstance(item, list)]) * BYTES_PER_TOKEN
    return 1, len(value) * BYTES_PER_TOKEN
