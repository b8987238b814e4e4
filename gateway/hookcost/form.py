"""What a chat body says beside its messages: an application says the same each time, so its classification is kept.

The bytes around the messages are the key, so that neither the schema among them nor anything else is parsed again:
what msgspec skips on its way to the messages is equal, byte for byte, to what was read in full before.
"""

from typing import Final

from gateway.hookcost.messages import ABSENT, UNREADABLE, decode_body, decode_messages
from gateway.hookcost.prompt import text_bytes


class Form:
    """Of one body.

    key:          all of it but its messages; whether that is valid is not said.
    prompt_bytes: UTF-8 bytes of the messages' texts.
    start, end:   where bytes like the messages' first stand, which is most often where the messages are.
    """

    __slots__ = ("end", "key", "prompt_bytes", "start")

    def __init__(self, key: bytes, prompt_bytes: int, start: int, end: int) -> None:
        self.key = key
        self.prompt_bytes = prompt_bytes
        self.start = start
        self.end = end


def form_of(body: bytes) -> Form | None:
    """The form of a chat body; None where its messages hold anything but texts: parts, tools, or no list at all."""
    try:
        spelled = bytes(decode_body(body).messages)
    except UNREADABLE:
        return None
    prompt_bytes = text_bytes_of(spelled)
    if prompt_bytes < 0:
        return None
    # Wherever these bytes stand first, only this value there makes this key: had another body other messages at that
    # place, they could not begin with the whole of these.
    start = _place_of(spelled, body)
    end = start + len(spelled)
    return Form(b"%b\0%b" % (body[:start], body[end:]), prompt_bytes, start, end)


def text_bytes_of(spelled: bytes) -> int:
    """UTF-8 bytes of the texts of messages; -1 for what is no list of messages that are texts, and nothing but that."""
    try:
        messages = decode_messages(spelled)
    except UNREADABLE:
        return -1
    total = 0
    for message in messages:
        if message.tools is not ABSENT:
            return -1
        total += text_bytes(message.content)
    return total


def stands_at(body: bytes, start: int, end: int) -> bool:
    """Whether the messages of a valid body are what stands there: then any others in their place are read as such."""
    try:
        return bytes(decode_body(b"%b%b%b" % (body[:start], _NO_MESSAGES, body[end:])).messages) == _NO_MESSAGES
    except UNREADABLE:
        return False


def _place_of(spelled: bytes, body: bytes) -> int:
    """Where `spelled` first stands in `body`. The search for a long text begins with a walk over all of it."""
    start = body.find(spelled[:_BEGINNING_BYTES])
    return start if body[start : start + len(spelled)] == spelled else body.find(spelled)


_NO_MESSAGES: Final = b'["no messages"]'
"""Never what `form_of` has found: it is no list of messages."""
_BEGINNING_BYTES: Final = 32
