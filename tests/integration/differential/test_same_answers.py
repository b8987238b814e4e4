"""What a client reads of a replica's answer is what others read in it, or it sees that something went wrong."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .answers import Answered, answers
from .passing import Passing
from .sameness import DifferenceError


@pytest.fixture(scope="module")
def passing(runner: asyncio.Runner) -> Iterator[Passing]:
    stack = AsyncExitStack()
    try:
        yield runner.run(stack.enter_async_context(Passing().running()))
    finally:
        runner.run(stack.aclose())


@settings(max_examples=250, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(sequence=st.lists(answers(), min_size=1, max_size=3))
def test_any_answer_reaches_the_client_as_others_read_it_or_not_at_all(
    runner: asyncio.Runner, passing: Passing, sequence: list[Answered]
) -> None:
    runner.run(passing.check(sequence))


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nok",
    ],
)
def test_the_comparison_finds_what_differs(runner: asyncio.Runner, passing: Passing, data: bytes) -> None:
    good = Answered(b"GET", b"1.1", data, (), "close", True)
    assert runner.run(passing.check([good])) == 1
    broken = Answered(b"GET", b"1.1", b"nonsense", (), "close", True)
    with pytest.raises(DifferenceError):
        runner.run(passing.check([broken]))
