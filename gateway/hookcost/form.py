"""What a chat body says beside its messages: an application says the same each time, so its classification is kept.

The bytes around the messages are the key, so that neither the schema among them nor anything else is parsed again:
what msgspec skips on its way to the messages is equal, byte for byte, to what was read in full before.
"""

from typing import Final

from gateway.hookcost.messages import ABSENT, UNREADABLE, decode_body, decode_messages
from gateway.hookcost.prompt import text_bytes

NO_FORM: Final = (b"", -1)


def form_of(body: bytes) -> tuple[bytes, int]:
    """All of a chat body but its messages, and the UTF-8 bytes of their texts.

    `NO_FORM` where the messages hold anything but texts: parts, tools, or no list at all. Whether the rest is valid is
    not said.
    """
    try:
        spelled = bytes(decode_body(body).messages)
        messages = decode_messages(spelled)
    except UNREADABLE:
        return NO_FORM
    prompt_bytes = 0
    for message in messages:
        if message.tools is not ABSENT:
            return NO_FORM
        prompt_bytes += text_bytes(message.content)
    # Wherever these bytes stand first, only this value there makes this key: had another body other messages at that
    # place, they could not begin with the whole of these.
    start = body.find(spelled)
    return b"%b\0%b" % (body[:start], body[start + len(spelled) :]), prompt_bytes
