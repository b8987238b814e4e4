"""A third opinion: how h11 reads the bytes that a client has sent.

Asked where Steplane takes what HAProxy refuses: then somebody else must read the same in it.
"""

from __future__ import annotations

import h11

from .message import Message


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
        except h11.RemoteProtocolError:
            break
        if message is None:
            break
        messages.append(message)
        if connection.their_state is h11.MUST_CLOSE and not _kept_alive(message):
            break
        data = connection.trailing_data[0]
    return messages


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
