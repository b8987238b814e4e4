"""One HTTP exchange as it was on the wire, recorded below any client library."""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request's body and the response to it, both without transfer framing.

    target:  method and path with query ("POST /v1/completions").
    headers: of the response, in wire order, names in lower case.
    """

    target: str
    request_body: bytes
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The value of the first header of that (lower-case) name."""
        return next((value for key, value in self.headers if key == name), None)

    @property
    def is_stream(self) -> bool:
        return (self.header("content-type") or "").startswith("text/event-stream")

    @property
    def events(self) -> list[bytes]:
        """The body cut at the blank lines that end server-sent events."""
        return self.body.split(b"\n\n")


class Recorder(httpx.BaseTransport):
    """An httpx transport that keeps every exchange once its response is closed, and changes nothing."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _Tee(response.stream, self.exchanges, request, response)
        return response

    def close(self) -> None:
        self._inner.close()


class _Tee(httpx.SyncByteStream):
    def __init__(
        self,
        inner: httpx.SyncByteStream,
        into: list[Exchange],
        request: httpx.Request,
        response: httpx.Response,
    ) -> None:
        self._inner = inner
        self._rest = iter(inner)
        self._into = into
        self._request = request
        self._response = response
        self._chunks: list[bytes] = []

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._rest:
            self._chunks.append(chunk)
            yield chunk

    def close(self) -> None:
        # A client of a stream leaves at `[DONE]` or at an error; the recording is to be of the whole answer.
        self._chunks += self._rest
        self._inner.close()
        self._into.append(
            Exchange(
                target=f"{self._request.method} {self._request.url.raw_path.decode()}",
                request_body=self._request.content,
                status=self._response.status_code,
                headers=tuple((name.lower(), value) for name, value in self._response.headers.multi_items()),
                body=b"".join(self._chunks),
            )
        )
