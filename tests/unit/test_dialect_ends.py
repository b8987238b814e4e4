import pytest

from gateway.dialect import has_ended


@pytest.mark.parametrize(
    ("last_read", "ended"),
    [
        (b"e\r\ndata: [DONE]\n\n\r\n", True),
        (b'data: {"choices":[]}\n\ndata: [DONE]\n\n', True),
        (b'event: message_stop\ndata: {"type":"message_stop"}\n\n', True),
        (b'event: response.completed\ndata: {"type":"response.completed","response":{}}\n\n', True),
        (b'data: {"choices":[{"delta":{"content":"data: [DONE]"}}]}\n\n', False),
        (b"", False),
    ],
)
def test_a_stream_has_ended_with_its_last_event(last_read: bytes, ended: bool) -> None:
    assert has_ended(last_read) is ended
