"""What Envoy is told, as messages."""

import pytest
from envoy.config.core.v3 import base_pb2
from google.protobuf import struct_pb2

from gateway.epp.mutations import SUBSET, difference, header_list, immediate, metadata, parsed_lines, streamed, subset
from gateway.wire.message import Headers


@pytest.mark.parametrize(
    ("before", "after", "changed", "removed"),
    [
        ([(b"a", b"1")], [(b"a", b"1")], [], []),
        ([(b"a", b"1")], [(b"a", b"2")], [("a", b"2", 2)], []),
        ([(b"a", b"1")], [], [], ["a"]),
        ([], [(b"a", b"1"), (b"a", b"2")], [("a", b"1", 2), ("a", b"2", 0)], []),
        # Envoy's own connections have their own of these.
        ([(b":path", b"/"), (b"te", b"x")], [(b"host", b"a"), (b"content-length", b"5")], [], []),
        ([(b"transfer-encoding", b"chunked")], [(b"connection", b"close")], [], []),
    ],
)
def test_only_what_differs_is_told(
    before: Headers, after: Headers, changed: list[tuple[str, bytes, int]], removed: list[str]
) -> None:
    mutation = difference(before, after)
    told = [(each.header.key, each.header.raw_value, each.append_action) for each in mutation.set_headers]
    assert (told, list(mutation.remove_headers)) == (changed, removed)


def test_headers_are_read_in_either_field() -> None:
    headers = base_pb2.HeaderMap(
        headers=[base_pb2.HeaderValue(key="A", raw_value=b"1"), base_pb2.HeaderValue(key="b", value="2")]
    )
    assert header_list(headers) == [(b"a", b"1"), (b"b", b"2")]


def test_lines_are_read_as_headers() -> None:
    assert parsed_lines(b"X-A: 1\r\nb:2\r\n") == [(b"x-a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize(("size", "pieces"), [(0, 1), (1, 1), (60_000, 1), (60_001, 2), (200_000, 4)])
@pytest.mark.parametrize("end", [True, False])
def test_a_body_is_cut_into_pieces_of_which_the_last_says_so(size: int, pieces: int, end: bool) -> None:
    body = bytes(range(256)) * 800
    parts = [each.streamed_response for each in streamed(body[:size], end=end)]
    assert b"".join(part.body for part in parts) == body[:size]
    assert [part.end_of_stream for part in parts] == [False] * (pieces - 1) + [end]


def test_metadata_says_where_a_request_goes_and_why() -> None:
    said = metadata("10.0.0.1:80", [(b"x-steplane-pool", b"p"), (b"x-steplane-route", b"r"), (b"x-other", b"o")])
    assert dict(said["envoy.lb"]) == {"x-gateway-destination-endpoint": "10.0.0.1:80"}
    assert dict(said["steplane"]) == {"pool": "p", "route": "r"}


def test_an_answer_of_ours_says_nothing_of_its_framing() -> None:
    answer = immediate(429, [(b"retry-after", b"1"), (b"content-length", b"2")], b"{}", "d").immediate_response
    assert (answer.status.code, answer.body, answer.details) == (429, b"{}", "d")
    assert [each.header.key for each in answer.headers.set_headers] == ["retry-after"]


@pytest.mark.parametrize(
    ("value", "found"), [(["a:1", "b:2"], {"a:1", "b:2"}), ("a:1, b:2", {"a:1", "b:2"}), ([], set()), ("", set())]
)
def test_the_offered_endpoints_come_as_a_list_or_as_text(value: object, found: set[str]) -> None:
    hint = struct_pb2.Struct()
    hint.update({SUBSET: value})
    context = base_pb2.Metadata()
    assert subset(context) == frozenset()
    context.filter_metadata["envoy.lb.subset_hint"].CopyFrom(hint)
    assert subset(context) == found
