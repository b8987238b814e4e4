"""A trip that comes together with something else: whatever comes first, each client gets one whole answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.breaker.record import Kind, State
from tests.integration.gateway.harness import ANSWER, CHAT, EVENT, LAST, PLAIN, SSE_HEAD, Held, request
from tests.integration.loop.harness import COSTLY, HARD_US, KINDS, Stage, pool_of, rid_of, stage, stays, street
from tests.integration.wire.harness import Message, Served, chunk, until

ROUNDS = 25


def over(on: Stage, message: Message) -> None:
    """The feed tells of a step over the hard limit."""
    on.interactive.says.steps(rid_of(message), HARD_US * 2)


def by_hand(on: Stage, message: Message) -> None:
    """It trips in this very turn of the loop."""
    on.trust.add(Kind.signature, on.signature(**COSTLY), "kim", "")


def forgive(on: Stage) -> None:
    on.trust.release(Kind.signature, on.signature(**COSTLY), "kim", "")


TRIPS: dict[str, Callable[[Stage, Message], None]] = {"by its feed": over, "by hand": by_hand}


@pytest.mark.parametrize("how", TRIPS)
@pytest.mark.parametrize("first", ["trip", "answer"])
async def test_with_its_answer(how: str, first: str) -> None:
    async with stage() as on:

        async def answer(served: Served, message: Message) -> None:
            if first == "trip":
                TRIPS[how](on, message)
            served.writer.write(ANSWER)
            if first == "answer":
                TRIPS[how](on, message)

        on.interactive.answer = answer
        client = await on.client()
        for _ in range(ROUNDS):
            got = await client.ask(request(CHAT, PLAIN[CHAT] | COSTLY), b"POST")
            assert (got.status, got.body) == (200, b'{"ok":true}')
            assert pool_of(got) in ("interactive", "quarantine")
            await until(lambda: on.state(**COSTLY) is State.open)
            forgive(on)
        assert len(on.interactive.asked) == ROUNDS


@pytest.mark.parametrize("how", TRIPS)
@pytest.mark.parametrize("last", [LAST, chunk(b"data: [DONE]\n\n") + LAST, chunk(b'data: {"n":')], ids=repr)
async def test_with_the_end_of_its_stream(how: str, last: bytes) -> None:
    async with stage() as on:

        async def answer(served: Served, message: Message) -> None:
            served.writer.write(SSE_HEAD + EVENT)
            TRIPS[how](on, message)
            await asyncio.sleep(0)
            served.writer.write(last)
            await served.reader.read() if not last.endswith(LAST) else None

        on.interactive.answer = answer
        for _ in range(ROUNDS):
            client = await on.begin(stream=True, **COSTLY)
            async with asyncio.timeout(10):
                head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            pool = b"quarantine" if b"x-steplane-pool: quarantine" in head else b"interactive"
            if pool == b"interactive":
                rest = b""
                with_end = False
                async with asyncio.timeout(10):
                    while not with_end:
                        data = await client.reader.read(1 << 16)
                        rest += data
                        with_end = not data or rest.endswith(LAST)
                assert rest.startswith(EVENT)
                if rest.endswith(LAST):  # else it was broken off within an event
                    assert rest.count(b"[DONE]") <= 1
                    assert rest.count(b'"error"') <= 1
            client.close()
            await until(lambda: on.state(**COSTLY) is State.open)
            forgive(on)


@pytest.mark.parametrize("how", TRIPS)
@pytest.mark.parametrize("begun", [False, True], ids=["before its first byte", "after it"])
@pytest.mark.parametrize("first", ["trip", "client"])
async def test_with_its_client_leaving(how: str, begun: bool, first: str) -> None:
    async with stage() as on:
        for _ in range(ROUNDS):
            held = Held(SSE_HEAD + EVENT if begun else b"")
            on.interactive.answer = held
            client = await on.begin(stream=True, **COSTLY)
            await held.arrived.wait()
            if begun:
                await client.read_until(EVENT)
            if first == "client":
                client.writer.transport.abort()
            TRIPS[how](on, on.interactive.asked[-1])
            if first == "trip":
                client.writer.transport.abort()
            await held.left.wait()
            await until(lambda: on.in_flight == 0)
            await until(lambda: on.state(**COSTLY) is State.open)
            forgive(on)
        aborted = on.interactive.aborted
        await until(lambda: set(aborted) == set(on.interactive.rids))


@pytest.mark.parametrize("how", TRIPS)
@pytest.mark.parametrize("first", ["trip", "death"])
async def test_with_the_death_of_its_connection_and_so_a_retry(how: str, first: str) -> None:
    pools = street(interactive=2)
    options = {"interactive": {"ejection": {"consecutive_faults": 0, "error_rate": 0}}}
    async with stage(pools, options=options) as on:

        def answer_of(replica: Any) -> Any:
            async def answer(served: Served, message: Message) -> None:
                if first == "death":
                    served.reset()
                if how == "by hand":
                    by_hand(on, message)
                else:
                    replica.says.steps(rid_of(message), HARD_US * 2)
                if first == "trip":
                    served.reset()

            return answer

        for replica in pools["interactive"]:
            replica.answer = answer_of(replica)
        for _ in range(ROUNDS):
            got = await on.chat(**COSTLY)
            # Where both replicas were quicker to hang up than their feeds to tell of it.
            assert (got.status, pool_of(got)) in ((200, "quarantine"), (502, "interactive"))
            if how == "by hand":
                assert got.status == 200
            await until(lambda: on.state(**COSTLY) is State.open)
            forgive(on)


async def test_with_another_trip_of_the_same_signature() -> None:
    async with stage() as on:
        held = Held(b"", ANSWER)
        on.interactive.answer = held
        clients = [await on.begin(**COSTLY) for _ in range(6)]
        await until(lambda: len(on.interactive.asked) == 6)
        for rid in on.interactive.rids:
            on.interactive.says.steps(rid, HARD_US * 2)
        for client in clients:
            assert pool_of(await client.response(b"POST")) == "quarantine"
        record = on.record(**COSTLY)
        assert record is not None
        assert record.trips == 1
        assert len(on.quarantine.asked) == 6


async def test_two_hundred_running_ones_are_run_again_at_once_and_plain_ones_are_not_held_up() -> None:
    count = 200
    async with stage() as on:
        held = Held(b"", ANSWER)
        on.interactive.answer = held
        clients = [await on.begin(**COSTLY) for _ in range(count)]
        plain = [await on.begin() for _ in range(20)]
        await until(lambda: len(on.interactive.asked) == count + 20)
        offenders = {rid_of(message) for message in on.interactive.asked if b"@@" in message.body}
        on.interactive.says.steps(next(iter(offenders)), HARD_US * 2)
        for client in clients:
            got = await client.response(b"POST")
            assert (got.status, pool_of(got)) == (200, "quarantine")
        assert len(on.quarantine.asked) == count
        await until(lambda: set(on.interactive.aborted) == offenders)
        held.finish.set()
        for client in plain:
            got = await client.response(b"POST")
            assert (got.status, pool_of(got)) == (200, "interactive")


async def test_two_hundred_streams_are_all_ended_by_an_error() -> None:
    count = 200
    async with stage() as on:
        held = Held(SSE_HEAD + EVENT)
        on.interactive.answer = held
        clients = [await on.begin(stream=True, **COSTLY) for _ in range(count)]
        for client in clients:
            await client.read_until(EVENT)
        on.interactive.says.steps(on.interactive.rids[0], HARD_US * 2)
        for client in clients:
            async with asyncio.timeout(20):
                rest = await client.reader.readuntil(LAST)
            assert rest.count(b"step_budget_exceeded") == 1
            assert rest.endswith(chunk(b"data: [DONE]\n\n") + LAST) or b"data: [DONE]\n\n" in rest
        assert on.quarantine.asked == []


async def test_a_body_that_is_streamed_through_is_never_taken_back() -> None:
    """It asks for no generation, so that nothing of it can trip; and it could not be sent twice."""
    async with stage() as on:
        gate = asyncio.Event()

        async def upload(served: Served, message: Message) -> None:
            await gate.wait()
            await served.send(ANSWER)

        on.interactive.answer = upload
        client = await on.client()
        await client.send(b"POST /v1/files HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        await client.send(chunk(b"x" * 1000))
        await until(lambda: on.in_flight == 1)
        on.trust.add(Kind.signature, "s1-0000000000000000", "kim", "the signature of what is no generation")
        by_hand(on, on.interactive.asked[-1] if on.interactive.asked else None)  # type: ignore[arg-type]
        await stays(lambda: on.in_flight == 1)
        await client.send(chunk(b"y" * 1000) + LAST)
        await until(lambda: len(on.interactive.asked) == 1)
        gate.set()
        got = await client.response(b"POST")
        assert (got.status, pool_of(got)) == (200, "interactive")
        assert on.interactive.asked[0].body == b"x" * 1000 + b"y" * 1000
        assert on.interactive.aborted == []


async def test_a_request_whose_body_is_still_coming_when_its_signature_trips_goes_to_quarantine() -> None:
    async with stage() as on:
        data = request(CHAT, PLAIN[CHAT] | COSTLY)
        client = await on.client()
        await client.send(data[:-10])
        await on.trip(**COSTLY)
        await client.send(data[-10:])
        assert pool_of(await client.response(b"POST")) == "quarantine"


async def test_while_a_connection_is_made() -> None:
    async with stage() as on:
        for _ in range(ROUNDS):
            client = await on.begin(**COSTLY)
            await until(lambda: on.in_flight > 0 or len(on.interactive.asked) > 0)
            by_hand(on, None)  # type: ignore[arg-type]
            got = await client.response(b"POST")
            assert (got.status, got.body) == (200, b'{"ok":true}')
            client.close()
            forgive(on)
            for link in on.gateway._server.upstreams:  # type: ignore[union-attr]
                link.drop_idle()


async def test_many_kinds_trip_and_are_released_while_all_of_them_run() -> None:
    async with stage(street(interactive=3)) as on:

        async def soon(served: Served, message: Message) -> None:
            await asyncio.sleep(0.001)
            await served.send(ANSWER)

        for replica in on.pools["interactive"]:
            replica.answer = soon
        done = False

        async def ask(extra: Any) -> int:
            count = 0
            while not done:
                got = await on.chat(**extra)
                assert (got.status, got.body) == (200, b'{"ok":true}')
                count += 1
            return count

        asking = [asyncio.create_task(ask(extra)) for extra in [*KINDS, *KINDS, {}]]
        for turn in range(60):
            signature = on.signature(**KINDS[turn % len(KINDS)])
            if turn % 3 == 2:
                on.trust.release(Kind.signature, signature, "kim", "")
            else:
                on.trust.add(Kind.signature, signature, "kim", "")
            await asyncio.sleep(0.005)
        done = True
        counts = await asyncio.gather(*asking)
        assert all(counts)
