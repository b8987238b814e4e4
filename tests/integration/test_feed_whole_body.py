"""What a server has at one path: read whole or not at all, however the answer is framed."""

import asyncio

import pytest

from gateway.feed.wholebody import WholeBody

HEAD = b"HTTP/1.1 200 OK\r\n"


async def read(answer: bytes, most_bytes: int = 1000) -> tuple[bytes | None, bytes]:
    """What is read of a server that answers so and closes, and what it was asked."""
    asked = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        for byte in answer[:20]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        writer.write(answer[20:])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        whole = WholeBody("test", f"http://127.0.0.1:{port}", "/metrics", most_bytes)
        return await whole.read(), asked


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (HEAD + b"content-length: 5\r\n\r\nabcde", b"abcde"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n", b"abcde"),
        (HEAD + b"connection: close\r\n\r\nabcde", b"abcde"),
        (HEAD + b"content-length: 0\r\n\r\n", b""),
        (HEAD + b"content-length: 1000\r\n\r\n" + b"x" * 1000, b"x" * 1000),
        (HEAD + b"content-length: 1001\r\n\r\n" + b"x" * 1001, None),
        (HEAD + b"connection: close\r\n\r\n" + b"x" * 1001, None),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno", None),
        (b"HTTP/1.1 307 Elsewhere\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", None),
        (b"SSH-2.0-OpenSSH_9.6 and no HTTP at all\r\n", None),
    ],
)
async def test_a_good_answer_is_read_whole_and_any_other_is_none(answer: bytes, body: bytes | None) -> None:
    found, asked = await read(answer)
    assert found == body
    assert asked.startswith(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nuser-agent: steplane-test\r\n" in asked


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"content-length: 6\r\n\r\nabcde",
        HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n",
        HEAD + b"connection: close\r\n",
        b"",
    ],
)
async def test_an_answer_that_breaks_off_is_an_error(answer: bytes) -> None:
    with pytest.raises(ConnectionError):
        await read(answer)


async def test_nobody_there_is_an_error() -> None:
    with pytest.raises(ConnectionRefusedError):
        await WholeBody("test", "http://127.0.0.1:1", "/metrics", 1000).read()


async def test_a_server_that_says_nothing_is_given_up_when_the_time_is_over() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        gone.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await WholeBody("test", f"http://127.0.0.1:{port}", "/metrics", 1000).read()
        await asyncio.wait_for(gone.wait(), 30)
