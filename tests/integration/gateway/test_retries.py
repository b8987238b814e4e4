"""What happens when a replica fails before it has answered, or none is there."""

import asyncio

import pytest

from .harness import (
    ANSWER,
    CHAT,
    PLAIN,
    SSE_HEAD,
    Engine,
    Held,
    Message,
    Served,
    error_of,
    hang_up,
    house,
    ok,
    request,
    until,
)

STRUCTURED = {**PLAIN[CHAT], "json_schema": "{}"}


async def test_a_refused_connection_is_tried_on_another_replica_and_the_first_is_ejected_at_once() -> None:
    async with house({"interactive": [Engine("a"), Engine("b")]}) as running:
        await running.engines["a"].stop()
        for _ in range(4):
            answer = await running.ask(CHAT, PLAIN[CHAT])
            assert (answer.status, answer.values(b"x-steplane-replica")) == (200, [b"b"])
        assert not running.available("a")
        assert await running.metric("steplane_upstream_errors_total", replica="a", kind="connect_failed") == 1
        assert await running.metric("steplane_replica_up", replica="a") == 0
        assert await running.metric("steplane_requests_total") == 4


async def test_a_replica_that_is_back_takes_requests_again() -> None:
    async with house({"interactive": [Engine("a")]}) as running:
        await running.engines["a"].stop()
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 503
        await running.engines["a"].start()
        await until(lambda: running.available("a"))
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200


async def test_two_refusals_are_enough() -> None:
    pools = {"interactive": [Engine("a"), Engine("b"), Engine("c")]}
    async with house(pools) as running:
        await running.engines["a"].stop()
        await running.engines["b"].stop()
        answers = [await running.ask(CHAT, PLAIN[CHAT]) for _ in range(2)]
        assert [answer.status for answer in answers] == [502, 200]
        assert error_of(answers[0])["code"] == "upstream_connect_failed"
        assert answers[0].header(b"x-steplane-pool") == b"interactive"
        assert answers[0].header(b"x-steplane-replica") is None
        assert answers[1].header(b"x-steplane-replica") == b"c"


async def test_when_both_replicas_refuse_the_client_hears_why() -> None:
    async with house({"interactive": [Engine("a"), Engine("b")]}, down=("interactive",)) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT], "x-request-id: mine")
        assert answer.status == 502
        assert error_of(answer)["code"] == "upstream_connect_failed"
        assert answer.values(b"x-request-id") == [b"mine"]
        assert answer.values(b"x-steplane-route") == [b"plain"]
        assert answer.header(b"x-steplane-replica") is None
        assert running.in_flight == 0


async def test_when_the_only_replica_refuses_nothing_of_the_attempt_shows_in_the_answer() -> None:
    async with house(down=("interactive",)) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT], "x-request-id: mine")
        assert answer.status == 503
        assert error_of(answer)["code"] == "pool_unavailable"
        assert answer.values(b"x-steplane-route") == [b"plain"]
        assert answer.values(b"x-request-id") == [b"mine"]
        assert answer.header(b"retry-after") == b"1"
        assert not answer.values(b"x-steplane-pool") + answer.values(b"x-steplane-replica")


async def test_when_the_only_replica_refuses_the_pool_spills() -> None:
    options = {"interactive": {"when_unavailable": {"spill": "grammar"}}}
    async with house(options=options, down=("interactive",)) as running:
        for _ in range(2):
            answer = await running.ask(CHAT, PLAIN[CHAT])
            assert answer.status == 200
            assert answer.values(b"x-steplane-pool") == [b"grammar"]
            assert answer.values(b"x-steplane-replica") == [b"grammar-0"]
            assert answer.values(b"x-steplane-route") == [b"plain"]
        spilled = await running.metric("steplane_spilled_requests_total", **{"from": "interactive", "to": "grammar"})
        assert spilled == 2


async def test_spills_go_on_down_the_chain_and_end_in_a_refusal_that_says_when_to_come_back() -> None:
    options = {
        "interactive": {"when_unavailable": {"spill": "grammar"}},
        "grammar": {"when_unavailable": {"spill": "quarantine"}},
        "quarantine": {"when_unavailable": {"reject": {"retry_after_s": 7}}},
    }
    async with house(options=options, down=("interactive", "grammar")) as running:
        await running.ask(CHAT, STRUCTURED)  # learns of the one pool; the next request of the other
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert (answer.status, answer.header(b"x-steplane-pool")) == (200, b"quarantine")
        await running.engines["quarantine-0"].stop()
        await running.ask(CHAT, PLAIN[CHAT])
        refused = await running.ask(CHAT, PLAIN[CHAT])
        assert (refused.status, refused.header(b"retry-after")) == (503, b"7")
        assert refused.header(b"x-steplane-route") == b"plain"
        assert "grammar" in error_of(refused)["message"]


async def test_another_pool_s_failure_is_no_concern_of_the_others() -> None:
    async with house(down=("grammar", "quarantine")) as running:
        assert (await running.ask(CHAT, STRUCTURED)).status == 503
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200
        assert (await running.admin("/readyz"))[0] == 200


async def test_a_stale_connection_is_replaced_by_a_new_one_to_the_same_replica() -> None:
    """An engine may close an idle connection in the moment in which a request is written to it."""
    async with house({"interactive": [Engine("a")]}) as running:
        engine = running.engines["a"]
        client = await running.client()
        assert (await client.ask(request(CHAT, PLAIN[CHAT]))).status == 200

        async def once(served: Served, message: Message) -> None:
            engine.answer = ok
            served.reset()

        engine.answer = once
        answer = await client.ask(request(CHAT, PLAIN[CHAT]))
        assert (answer.status, answer.header(b"x-steplane-replica")) == (200, b"a")
        assert len(engine.asked) == 3
        assert engine.asked[1].body == engine.asked[2].body
        assert engine.asked[1].headers == engine.asked[2].headers
        assert running.available("a")


async def test_a_connection_closed_before_any_byte_is_tried_on_another_replica() -> None:
    async with house({"interactive": [Engine("a", hang_up), Engine("b")]}) as running:
        answers = [await running.ask(CHAT, PLAIN[CHAT]) for _ in range(4)]
        assert [(answer.status, answer.values(b"x-steplane-replica")) for answer in answers] == [(200, [b"b"])] * 4
        assert running.available("a")  # whether it is up is for its health check to say


async def test_when_every_replica_hangs_up_the_client_gets_an_error_after_two_attempts() -> None:
    engines = [Engine(name, hang_up) for name in "abc"]
    async with house({"interactive": engines}) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert answer.status == 502
        assert error_of(answer)["code"] == "upstream_closed_early"
        assert len(running.asked) == 2
        assert answer.header(b"x-steplane-pool") == b"interactive"


async def test_half_a_head_is_not_an_answer_to_repeat() -> None:
    half = Held(b"HTTP/1.1 200 OK\r\ncontent-le")
    async with house({"interactive": [Engine("a", half), Engine("b", half)]}) as running:
        half.finish.set()
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert answer.status == 502
        assert error_of(answer)["code"].startswith("upstream_")


async def test_after_the_first_byte_nothing_is_repeated() -> None:
    broken = Held(SSE_HEAD)
    async with house({"interactive": [Engine("a", broken), Engine("b", broken)]}) as running:
        client = await running.client()
        await client.send(request(CHAT, {**PLAIN[CHAT], "stream": True}))
        assert (await client.head()).status == 200
        broken.finish.set()
        await client.read_until(b"0\r\n\r\n")
        assert len(running.asked) == 1


async def test_a_streamed_upload_is_not_repeated_once_some_of_it_was_given_away() -> None:
    class Cut(Engine):
        """Takes the head and a little of the body, and hangs up."""

        cut = 0

        async def _serve(self, served: Served) -> None:
            head = await served.reader.readuntil(b"\r\n\r\n")
            if b"/health" in head:
                await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                return
            Cut.cut += 1
            await served.reader.readexactly(5)
            served.reset()

    async with house({"interactive": [Cut("a"), Cut("b")]}) as running:
        client = await running.client()
        await client.send(b"POST /v1/files HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n01234")
        answer = await client.response()
        assert answer.status == 502
        assert error_of(answer)["code"] == "upstream_closed_early"
        assert Cut.cut == 1


async def test_a_replica_that_does_not_answer_in_time_is_given_up_and_told() -> None:
    """The engine may be at it for long: nobody else is asked the same, and it hears that nobody waits."""
    held = Held()
    engines = [Engine("a", held), Engine("b", held)]
    async with house({"interactive": engines}, timeouts={"first_byte_s": 0.5}) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert answer.status == 504
        assert error_of(answer)["code"] == "upstream_first_byte_timeout"
        await until(lambda: any(engine.aborted for engine in engines))
        await asyncio.wait_for(held.left.wait(), 20)
        assert len(running.asked) == 1


@pytest.mark.parametrize(
    "nonsense", [b"ICY 200 OK\r\n\r\n", b"HTTP/1.1 banana\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\r\n\r\n" + ANSWER]
)
async def test_an_answer_that_is_no_http_is_an_error_of_the_upstream(nonsense: bytes) -> None:
    async def answer(served: Served, message: Message) -> None:
        await served.send(nonsense)

    async with house({"interactive": [Engine("a", answer), Engine("b", answer)]}) as running:
        got = await running.ask(CHAT, PLAIN[CHAT])
        assert got.status in (200, 502)
        if got.status == 502:
            assert error_of(got)["code"] == "upstream_bad_response"
            assert len(running.asked) == 1


async def test_requests_go_to_the_replica_with_the_fewest_in_flight() -> None:
    held = Held(end=ANSWER)
    async with house({"interactive": [Engine("a", held), Engine("b", held), Engine("c", held)]}) as running:
        clients = [await running.client() for _ in range(6)]
        for client in clients:
            await client.send(request(CHAT, PLAIN[CHAT]))
        await until(lambda: len(running.asked) == 6)
        assert [replica.in_flight for replica in running.replicas] == [2, 2, 2]
        assert await running.metric("steplane_in_flight_requests") == 6
        held.finish.set()
        names = [(await client.response()).header(b"x-steplane-replica") for client in clients]
        assert sorted(names) == [b"a", b"a", b"b", b"b", b"c", b"c"]
