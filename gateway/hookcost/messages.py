"""How msgspec finds the messages of a chat body, and reads the texts of messages.

Apart from form.py, which is compiled: msgspec makes its classes itself.
"""

from typing import Final

import msgspec


class ChatBody(msgspec.Struct, gc=False):
    """A chat body of which only the place of its messages is wanted."""

    messages: msgspec.Raw


ABSENT: Final = msgspec.Raw()
"""Stands for a field that is not there."""


class TextMessage(msgspec.Struct, gc=False):
    """A message whose content is a text; `tools` (of any type) is `ABSENT` where it has none."""

    content: str
    tools: msgspec.Raw = ABSENT


UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeError)
"""What the two below raise for a body that is not of that kind."""

decode_body: Final = msgspec.json.Decoder(ChatBody).decode
decode_messages: Final = msgspec.json.Decoder(list[TextMessage]).decode
