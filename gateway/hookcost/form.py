"""What a chat body says beside its messages: an application says the same each time, so its classification is kept.

The bytes around the messages are the key, so that neither the schema among them nor anything else is parsed again.
msgspec finds the messages; what it skips is equal, byte for byte, to what was read in full before.
"""

from typing import Final

import msgspec


class _Chat(msgspec.Struct, gc=False):
    messages: msgspec.Raw


class _Message(msgspec.Struct, gc=False):
    content: str
    tools: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_BODY: Final = msgspec.json.Decoder(_Chat)
_MESSAGES: Final = msgspec.json.Decoder(list[_Message])

NO_FORM: Final = (b"", -1)


def form_of(body: bytes) -> tuple[bytes, int]:
    """All of a chat body but its messages, and the UTF-8 bytes of their texts.

    `NO_FORM` where the messages hold anything but texts: parts, tools, or no list at all. Whether the rest is valid is
    not said.
    """
    try:
        spelled = bytes(_BODY.decode(body).messages)
        messages = _MESSAGES.decode(spelled)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return NO_FORM
    prompt_bytes = 0
    for message in messages:
        if message.tools is not msgspec.UNSET:
            return NO_FORM
        prompt_bytes += text_size(message.content)
    # Wherever these bytes stand first, only this value there makes this key: had another body other messages at that
    # place, they could not begin with the whole of these.
    start = body.find(spelled)
    return b"%b\0%b" % (body[:start], body[start + len(spelled) :]), prompt_bytes


def text_size(text: str) -> int:
    """UTF-8 bytes of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
