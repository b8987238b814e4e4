"""A third opinion: how h11 reads the bytes that a client has sent.

Asked where Steplane takes what HAProxy refuses: then somebody else must read the same in it. Where h11 refuses what
RFC 9112 wants accepted (white space before a chunk extension, a kept-alive connection of HTTP/1.0), the recorder's own
strict reader stands in for it.
"""

from __future__ import annotations

import h11

from .message import Message
from .recorder import UnreadableError, take


def messages_in(data: bytes) -> list[Message]:
    """The complete requests at the beginning of `data`, up to the first thing that h11 refuses.

    What CR and LF stand before a request line is skipped: none of it goes on, whoever reads it.
    """
    messages: list[Message] = []
    while data := data.lstrip(b"\r\n"):
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        connection.receive_data(data)
        try:
            message = _message(connection)
            data = connection.trailing_data[0]
            closes = connection.their_state is h11.MUST_CLOSE and message is not None and not _kept_alive(message)
        except h11.RemoteProtocolError:
            message, data = _strictly(data)
            closes = False
        if message is None:
            break
        messages.append(message)
        if closes:
            break
    return messages


def _strictly(data: bytes) -> tuple[Message | None, bytes]:
    try:
        return take(data) or (None, b"")
    except UnreadableError:
        return None, b""


def _kept_alive(message: Message) -> bool:
    """Whether a message of HTTP/1.0 asks for what h11 does not offer."""
    options = [value for name, value in message.headers if name == b"connection"]
    return b"keep-alive" in [option.strip().lower() for value in options for option in value.split(b",")]


def _message(connection: h11.Connection) -> Message | None:
    """The first request, None if it is incomplete. Raises h11.RemoteProtocolError."""
    head: h11.Request | None = None
    body: list[bytes] = []
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            headers = tuple((name.lower(), value) for name, value in head.headers)
            return Message(head.method, head.target, headers, b"".join(body))
        else:
            return None
