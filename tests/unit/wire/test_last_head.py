import pytest

from gateway.wire.message import LastHead

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nX: y\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (HEAD, (len(HEAD), 12)),
        (HEAD + b"hello", (len(HEAD), 12)),
        (HEAD.replace(b"12", b"1000"), (len(HEAD) + 2, 1000)),
        (HEAD.replace(b"12", b"0"), (len(HEAD) - 1, 0)),
        (HEAD.replace(b"12", b""), (-1, -1)),
        (HEAD.replace(b"12", b"+12"), (-1, -1)),
        (HEAD.replace(b"12", b"1 2"), (-1, -1)),
        (HEAD.replace(b"12", b"1" * 30), (-1, -1)),
        (HEAD.replace(b"X: y", b"X: z"), (-1, -1)),
        (HEAD.replace(b"Host: a", b"Host: b"), (-1, -1)),
        (HEAD.replace(b"X: y\r\n", b""), (-1, -1)),
        (HEAD[:-1], (-1, -1)),
        (HEAD[:20], (-1, -1)),
        (b"", (-1, -1)),
    ],
)
def test_only_a_head_that_differs_in_its_length_alone_is_the_last_one(data: bytes, found: tuple[int, int]) -> None:
    last = LastHead()
    assert last.match(data) == (-1, -1)
    last.keep(HEAD, "read")

    assert last.match(data) == found
    assert last.value == "read"


def test_a_head_without_a_length_is_not_kept() -> None:
    last = LastHead()
    last.keep(HEAD, "read")
    last.keep(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "other")

    assert last.match(HEAD) == (-1, -1)


def test_a_large_head_is_not_kept() -> None:
    """Each of ten thousand connections would keep one."""
    large = HEAD.replace(b"X: y", b"X: " + b"y" * 5000)
    last = LastHead()
    last.keep(large, "read")

    assert last.match(large) == (-1, -1)
