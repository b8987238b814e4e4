"""Reading one thing of heads: in any case, once for each head that comes again, and anew for each that does not."""

from __future__ import annotations

import pytest

from gateway.routing.head import Head, PaperHead, header_reader, query_reader


class Counted(PaperHead):
    """Counts how often it is asked."""

    def __init__(self, target: str = "/", value: str = "gold", base: Head | None = None) -> None:
        super().__init__(target, [("X-Tier", value), ("x-tier", "second")])
        self.base = base
        self.asked = 0

    def header(self, name: bytes) -> bytes | None:
        self.asked += 1
        return super().header(name)


def test_a_header_is_read_once_of_a_head_that_comes_again() -> None:
    read, head = header_reader("x-TIER"), Counted()

    assert [read(head) for _ in range(3)] == ["gold"] * 3
    assert head.asked == 1


def test_that_it_is_not_there_is_remembered_too() -> None:
    read, head = header_reader("x-other"), Counted()

    assert [read(head) for _ in range(3)] == [None] * 3
    assert head.asked == 1


def test_a_passing_variant_of_a_head_is_read_itself_and_not_kept() -> None:
    read, base = header_reader("x-tier"), Counted()
    variants = [Counted(value=f"v{number}", base=base) for number in range(3)]

    assert [read(variant) for variant in variants for _ in range(2)] == ["v0", "v0", "v1", "v1", "v2", "v2"]
    assert [variant.asked for variant in variants] == [2, 2, 2]


def test_what_is_remembered_is_bounded_and_right_for_any_number_of_heads() -> None:
    read = header_reader("x-tier")
    heads = [Counted(value=f"v{number}") for number in range(3000)]

    for _ in range(2):
        assert [read(head) for head in heads] == [f"v{number}" for number in range(3000)]


def test_without_a_head_nothing_is_there() -> None:
    assert header_reader("x")(None) is None
    assert query_reader("x")(None) is None


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("/v1", None),
        ("/v1?", None),
        ("/v1?debug=1", "1"),
        ("/v1?a=b&debug=1&debug=2", "1"),
        ("/v1?debug", ""),
        ("/v1?debug=", ""),
        ("/v1?debug=a%20b+c", "a b c"),
        ("/v1?d%65bug=1", "1"),
        ("/v1?other=debug", None),
        ("/v1?" + "a=1&" * 500 + "debug=1", None),
    ],
)
def test_a_parameter_of_the_query_is_decoded(target: str, value: str | None) -> None:
    assert query_reader("debug")(PaperHead(target)) == value
