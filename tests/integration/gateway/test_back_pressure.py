"""An engine that says when to come back is left alone until then; who finds nobody else waits, or is told how long."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from .harness import CHAT, PLAIN, Engine, House, Message, Served, error_of, house, ok, saying, until


def busy(retry_after: str, status: int = 503) -> Any:
    text = f"HTTP/1.1 {status} Busy\r\nRetry-After: {retry_after}\r\ncontent-length: 4\r\n\r\nbusy"
    return saying(text.encode())


def resting(running: House, name: str) -> bool:
    return next(replica.resting for replica in running.replicas if replica.name == name)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_busy_replica_gets_no_request_until_it_wants_some(status: int, form: str) -> None:
    value = "20" if form == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    engines = [Engine("a", busy(value, status)), Engine("b")]
    async with house({"interactive": engines}) as running:
        for _ in range(6):
            answer = await running.ask(CHAT, PLAIN[CHAT])
            assert (answer.status, answer.values(b"x-steplane-replica")) == (200, [b"b"])
        assert len(engines[0].asked) == 1
        assert resting(running, "a")
        assert await running.metric("steplane_replica_resting", replica="a") == 1
        assert await running.metric("steplane_upstream_errors_total") == 0


@pytest.mark.parametrize("value", ["", "soon", "-3", "0", "Thu, 01 Jan 1970 00:00:00 GMT"])
async def test_what_says_nothing_of_when_leaves_the_replica_where_it_is(value: str) -> None:
    engines = [Engine("a", busy(value)), Engine("b")]
    async with house({"interactive": engines}) as running:
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200
        assert not resting(running, "a")


async def test_with_a_bound_of_zero_nothing_is_heard() -> None:
    engines = [Engine("a", busy("20")), Engine("b")]
    options = {"interactive": {"retry": {"max_retry_after_s": 0}}}
    async with house({"interactive": engines}, options=options) as running:
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200
        assert not resting(running, "a")


async def test_the_only_replica_s_pause_is_waited_for() -> None:
    async def once(served: Served, message: Message) -> None:
        engine.answer = ok
        await busy("3600")(served, message)

    engine = Engine("a", once)
    options = {"interactive": {"retry": {"max_retry_after_s": 0.3}}}
    async with house({"interactive": [engine]}, options=options) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert (answer.status, answer.values(b"x-steplane-attempts")) == (200, [b"2"])
        assert not resting(running, "a")


async def test_a_new_request_waits_for_a_pause_that_is_short_enough() -> None:
    engine = Engine("a", busy("3600"))
    options = {"interactive": {"retry": {"max_retry_after_s": 20, "attempts": 1}}}
    async with house({"interactive": [engine]}, options=options) as running:
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 503
        engine.answer = ok
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: running.gateway.router.pools["interactive"].waiting == 1)
        assert len(engine.asked) == 1
        running.replicas[0].rest(False)  # as it will when the time has come
        assert (await asking).status == 200


@pytest.mark.parametrize("status", [429, 503])
async def test_a_pause_too_long_to_wait_for_is_told_to_the_client(status: int) -> None:
    engines = [Engine("a", busy("25", status)), Engine("b", busy("20", status))]
    options = {"interactive": {"admission": {"max_wait_s": 5}}}
    async with house({"interactive": engines}, options=options) as running:
        first = await running.ask(CHAT, PLAIN[CHAT])
        assert (first.status, first.body) == (status, b"busy")
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert answer.status == status
        assert error_of(answer)["code"] == "replicas_busy"
        assert 10 <= int(answer.header(b"retry-after") or 0) <= 20
        assert answer.values(b"x-steplane-route") == [b"plain"]
        assert len(running.asked) == 2
        assert (await running.admin("/readyz"))[0] == 200


async def test_busy_replicas_do_not_spill() -> None:
    """Overload is not unavailability: the pool behind would drown next."""
    engines = {"interactive": [Engine("a", busy("20"))], "grammar": [Engine("g")]}
    options = {"interactive": {"when_unavailable": {"spill": "grammar"}, "admission": {"max_wait_s": 1}}}
    async with house(engines, options=options) as running:
        for _ in range(2):
            assert (await running.ask(CHAT, PLAIN[CHAT])).status == 503
        assert running.engines["g"].asked == []


async def test_a_replica_that_dies_while_it_rests_lets_go_of_those_that_wait() -> None:
    engine = Engine("a", busy("20"))
    options = {"interactive": {"retry": {"attempts": 1}, "health": {"interval_s": 0.05, "eject_after": 1}}}
    async with house({"interactive": [engine]}, options=options) as running:
        await running.ask(CHAT, PLAIN[CHAT])
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: running.gateway.router.pools["interactive"].waiting == 1)
        await engine.stop()
        answer = await asking
        assert (answer.status, error_of(answer)["code"]) == (503, "pool_unavailable")
