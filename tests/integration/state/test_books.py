"""The books of a supervisor: they do what Redis does, and a worker that loses them goes on."""

import asyncio
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.state.books import Books, Told
from gateway.state.booksserver import BooksServer
from gateway.state.ledger import Change, Operation
from gateway.state.options import RedisOptions
from gateway.state.redislink import open_link
from gateway.state.stored import NO_CHANGE, Stored
from tests.integration.state.conftest import Join
from tests.integration.state.harness import Gateway, RedisServer
from tests.waiting import until

TOKENS = ("a.1", "a.2", "b.1", "b.2")

CHANGES = st.builds(
    Change,
    operation=st.sampled_from(Operation),
    key=st.sampled_from(["s", "t"]),
    token=st.sampled_from(TOKENS),
    ground=st.sampled_from([NO_CHANGE, "?", *TOKENS]),
    version=st.integers(1, 6),
    ttl_s=st.sampled_from([60.0, math.inf]),
    value=st.binary(max_size=3),
    fence=st.integers(0, 4),
    fence_token=st.sampled_from([NO_CHANGE, *TOKENS]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGES, max_size=20))
def test_the_books_answer_every_change_as_redis_does(server: RedisServer, changes: list[Change]) -> None:
    async def play() -> list[tuple[bool, Stored | None]]:
        server.call("FLUSHALL")
        link = await open_link(RedisOptions(url=server.url))
        try:
            return [(await link.change("signature", [change]))[0] for change in changes]
        finally:
            await link.close()

    told: list[Told] = []
    books = Books(lambda: time.time() * 1000, told.append)
    here = [books.change("signature", [change])[0] for change in changes]

    assert [_timeless(answer) for answer in here] == [_timeless(answer) for answer in asyncio.run(play())]
    assert [each.number for each in told] == list(range(1, len(told) + 1))


def _timeless(answer: tuple[bool, Stored | None]) -> tuple[bool, Stored | None]:
    clean, stored = answer
    return clean, None if stored is None else replace(stored, expires_ms=min(stored.expires_ms, 1))


class Supervisor:
    """Books that can be lost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._server = BooksServer()

    async def start(self) -> None:
        self._server = BooksServer()
        await self._server.start(self.path)

    async def die(self) -> None:
        await self._server.close()
        self.path.unlink(missing_ok=True)


@pytest.fixture
async def supervisor(tmp_path: Path) -> Supervisor:
    supervisor = Supervisor(tmp_path / "books")
    await supervisor.start()
    return supervisor


async def test_without_them_a_force_is_shown_at_once_an_advance_waits_and_no_lease_is_granted(
    supervisor: Supervisor, join: Join
) -> None:
    here, there = await join(supervisor.path), await join(supervisor.path)
    here.force("before", b"open")
    here.force("s", b"open")
    await until(lambda: there.value("before") == there.value("s") == b"open", "heard there")
    await supervisor.die()
    await until(lambda: not here.store.status().connected, "noticed here")
    await until(lambda: not there.store.status().connected, "noticed there")
    outcomes: list[bool] = []
    here.advance("s", 1, b"closed", outcomes)
    there.force("t", b"open")
    assert (here.value("s"), there.value("t"), outcomes) == (b"open", b"open", [])
    assert not await here.store.lease("probe", 1.0)
    await supervisor.start()
    await until(lambda: outcomes == [True], "decided")
    await until(lambda: there.value("s") == b"closed" and here.value("t") == b"open", "known everywhere")
    late = await join(supervisor.path)
    assert {key: value for key, _, value in late.heard} == {"before": b"open", "s": b"closed", "t": b"open"}
    await supervisor.die()


async def test_a_worker_that_comes_again_finds_what_the_one_that_was_killed_knew(books: Path, join: Join) -> None:
    gone = Gateway(books)
    await gone.store.start()
    gone.force("s", b"open")
    gone.store.add("signature", "s", {"trips": 1.0})
    await gone.published()
    await gone.store.close()
    again = await join(books)
    assert again.heard == [("s", 1, b"open")]
    await until(lambda: again.store.totals("signature", "s") == {"trips": 1.0}, "counted")


async def test_leases_are_exclusive_end_by_themselves_and_are_given_back_only_by_their_holder(
    books: Path, join: Join
) -> None:
    here, there = await join(books), await join(books)
    assert await here.store.lease("probe", 60.0)
    assert not await there.store.lease("probe", 60.0)
    there.store.release("probe")
    assert not await there.store.lease("probe", 60.0)
    here.store.release("probe")
    until_s = time.monotonic() + 20
    while not await there.store.lease("probe", 0.2):
        assert time.monotonic() < until_s
        await asyncio.sleep(0.005)
    while not await here.store.lease("probe", 0.2):
        assert time.monotonic() < until_s
        await asyncio.sleep(0.005)


async def test_what_is_no_question_is_refused_and_the_connection_goes_on(books: Path, join: Join) -> None:
    here = await join(books)
    reader, writer = await asyncio.open_unix_connection(books)
    writer.write(b"\x7f\xff\xff\xff")
    assert await reader.read() == b""
    writer.close()
    here.force("s", b"open")
    await here.published()
