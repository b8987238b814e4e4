"""How often a request is tried, after what, and how soon: by the plan of its rule and pool."""

import asyncio
from typing import Any

import pytest

from .harness import ANSWER, CHAT, PLAIN, Engine, Held, Message, Served, error_of, hang_up, house, ok, saying, until


def failing(status: int, retry_after: str = "") -> bytes:
    lines = f"retry-after: {retry_after}\r\n" if retry_after else ""
    return f"HTTP/1.1 {status} No\r\n{lines}content-type: text/plain\r\ncontent-length: 4\r\n\r\nbusy".encode()


def options(**retry: Any) -> dict[str, dict[str, Any]]:
    return {"interactive": {"retry": retry}}


@pytest.mark.parametrize(("attempts", "tries"), [(1, 1), (2, 2), (3, 3), (10, 4)])
async def test_a_request_is_tried_as_often_as_its_pool_says_and_on_each_replica_once(attempts: int, tries: int) -> None:
    engines = [Engine(name, hang_up) for name in "abcd"]
    async with house({"interactive": engines}, options=options(attempts=attempts)) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert answer.status == 502
        assert answer.values(b"x-steplane-attempts") == ([b"%d" % tries] if tries > 1 else [])
        assert [len(engine.asked) for engine in engines] == [1] * tries + [0] * (4 - tries)
        assert await running.metric("steplane_retries_total", pool="interactive", reason="reset") == tries - 1


@pytest.mark.parametrize(
    ("answer", "reason", "usual"),
    [
        (hang_up, "reset", True),
        (saying(failing(429)), "http_429", True),
        (saying(failing(503)), "http_503", True),
        (saying(failing(500)), "http_500", False),
        (saying(failing(502)), "http_502", False),
        (saying(failing(504)), "http_504", False),
    ],
)
@pytest.mark.parametrize("asked", ["usual", "with it", "without it"])
async def test_after_what_a_request_is_tried_again(answer: Any, reason: str, usual: bool, asked: str) -> None:
    on = {"usual": {}, "with it": {"on": [reason]}, "without it": {"on": ["connect"]}}[asked]
    retried = usual if asked == "usual" else asked == "with it"
    engines = [Engine("a", answer), Engine("b")]
    async with house({"interactive": engines}, options=options(**on)) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert (answer.status == 200) is retried
        assert answer.values(b"x-steplane-attempts") == ([b"2"] if retried else [])
        assert await running.metric("steplane_retries_total", reason=reason) == retried


async def test_an_engine_that_is_late_is_only_left_for_another_where_the_pool_says_so() -> None:
    held = Held()
    engines = [Engine("a", held), Engine("b")]
    retry = options(on=["timeout"])
    async with house({"interactive": engines}, options=retry, timeouts={"first_byte_s": 1}) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert (answer.status, answer.values(b"x-steplane-replica")) == (200, [b"b"])
        await until(lambda: bool(engines[0].aborted))


async def test_a_rule_overrides_its_pool_key_by_key() -> None:
    rules = [
        {"name": "once", "when": {"path": CHAT}, "pool": "interactive", "retry": {"attempts": 1}},
        {"name": "rest", "pool": "interactive"},
    ]
    engines = [Engine(name, saying(failing(500))) for name in "abc"]
    pool = options(attempts=3, on=["http_500"])
    async with house({"interactive": engines}, rules=rules, options=pool) as running:
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 500
        assert len(running.asked) == 1
        assert (await running.ask("/v1/completions", PLAIN["/v1/completions"])).status == 500
        assert len(running.asked) == 4


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_must_not_be_done_twice_is_only_repeated_if_it_was_certainly_not_begun(method: str) -> None:
    engines = [Engine("a", hang_up), Engine("b")]
    async with house({"interactive": engines}) as running:
        answer = await running.ask("/v1/files/7", method=method)
        assert answer.status == (200 if method == "GET" else 502)
        await engines[0].stop()
        answers = [await running.ask("/v1/files/7", method=method) for _ in range(3)]
        assert [answer.status for answer in answers] == [200] * 3


async def test_a_retry_that_is_to_wait_does_so_and_may_then_go_to_the_same_replica() -> None:
    engine = Engine("a", hang_up)
    back_off = {"first_s": 0.8, "factor": 1, "jitter": 0}
    async with house({"interactive": [engine]}, options=options(attempts=3, back_off=back_off)) as running:
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: len(engine.asked) == 1 and running.in_flight == 0)  # it holds no place while it waits
        engine.answer = ok
        answer = await asking
        assert (answer.status, answer.values(b"x-steplane-attempts")) == (200, [b"2"])


async def test_a_client_that_leaves_while_its_retry_waits_is_forgotten() -> None:
    engines = [Engine("a", hang_up), Engine("b", hang_up)]
    back_off = {"first_s": 30, "max_s": 30}
    async with house({"interactive": engines}, options=options(back_off=back_off)) as running:
        client = await running.client()
        await client.send(b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}" % CHAT.encode())
        await until(lambda: len(running.asked) == 1)
        client.close()
        await running.reaches("steplane_client_disconnects_total", 1)


async def test_retries_stop_when_their_budget_is_used_up() -> None:
    engines = [Engine("a", hang_up), Engine("b", hang_up)]
    budget = {"ratio": 0, "min_per_s": 0.2}  # two in ten seconds
    async with house({"interactive": engines}, options=options(budget=budget)) as running:
        for _ in range(5):
            assert (await running.ask(CHAT, PLAIN[CHAT])).status == 502
        assert len(running.asked) == 7
        assert await running.metric("steplane_retries_total") == 2
        assert await running.metric("steplane_retry_budget_exhausted_total", pool="interactive") == 3


async def test_refused_connections_take_nothing_from_the_budget() -> None:
    engines = [Engine("a"), Engine("b")]
    async with house({"interactive": engines}, options=options(budget={"ratio": 0, "min_per_s": 0})) as running:
        await engines[0].stop()
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200


async def test_an_error_of_the_last_attempt_is_passed_on_as_it_is() -> None:
    async with house({"interactive": [Engine(name, saying(failing(503))) for name in "ab"]}) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert (answer.status, answer.body) == (503, b"busy")
        assert answer.values(b"x-steplane-attempts") == [b"2"]


class Once:
    """Fails its first request."""

    def __init__(self) -> None:
        self.failed = False

    async def __call__(self, served: Served, message: Message) -> None:
        if self.failed:
            await served.send(ANSWER)
        else:
            self.failed = True
            served.reset()


@pytest.mark.parametrize(("retry", "status"), [({"attempts": 1}, 200), ({"on": ["connect"]}, 502)])
async def test_a_stale_connection_is_replaced_even_with_one_attempt_unless_that_is_not_wanted(
    retry: dict[str, Any], status: int
) -> None:
    once = Once()
    once.failed = True
    async with house({"interactive": [Engine("a", once)]}, options=options(**retry)) as running:
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200
        once.failed = False
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert answer.status == status
        if status == 502:
            assert error_of(answer)["code"] == "upstream_stale"
        assert await running.metric("steplane_retries_total", reason="stale") == (status == 200)
