"""Under load and faults: nothing is lost that could be tried again, nothing is sent twice that could not be, and after
it nothing is left."""

import asyncio
from collections.abc import Callable

import pytest

from tests.integration.gateway.harness import ANSWER, SSE_HEAD
from tests.integration.wire.harness import until

from .faultproxy import NONE, Fault
from .site import FILES, Site, site

PLAIN = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**PLAIN, "stream": True}
CLIENTS, EACH = 6, 6

BEFORE_THE_ENGINE_HAS_IT = [
    pytest.param(Fault(refuses=True), id="reset when accepted"),
    pytest.param(Fault(request_bytes=1), id="reset at the first byte"),
    pytest.param(Fault(request_bytes=120), id="reset in mid-request"),
]


def every(count: int, fault: Fault) -> Callable[[], Fault]:
    """The fault for every so many-th connection."""
    turn = 0

    def choose() -> Fault:
        nonlocal turn
        turn += 1
        return fault if turn % count == 0 else NONE

    return choose


def twice(running: Site, numbers: list[str]) -> list[str]:
    """Those that reached an engine more than once."""
    return [number for number in numbers if running.asked_of[number] > 1]


@pytest.mark.parametrize("fault", BEFORE_THE_ENGINE_HAS_IT)
async def test_what_no_engine_has_had_is_answered_by_another(fault: Fault) -> None:
    async with site() as running:
        running.engines[0].way.choose = lambda: fault
        numbers = await running.load(CLIENTS, EACH, PLAIN)
        assert running.statuses(numbers) == {200: CLIENTS * EACH}
        assert twice(running, numbers) == []
        assert running.faulty
        await running.at_rest()


async def test_an_engine_that_dies_without_a_byte_of_an_answer_costs_no_generation() -> None:
    async with site() as running:
        running.engines[0].way.choose = lambda: Fault(response_bytes=0, resets=True)
        numbers = await running.load(CLIENTS, EACH, STREAM)
        assert running.statuses(numbers) == {200: CLIENTS * EACH}
        assert running.faulty
        await running.at_rest()


@pytest.mark.parametrize("body", [PLAIN, None], ids=["with a body", "without one"])
async def test_what_may_do_harm_twice_is_sent_once(body: dict[str, object] | None) -> None:
    """A POST that the gateway knows nothing of, lost after the engine had it."""
    async with site() as running:
        running.engines[0].way.choose = lambda: Fault(response_bytes=0, resets=True)
        numbers = await running.load(CLIENTS, EACH, body, FILES)
        statuses = running.statuses(numbers)
        assert set(statuses) == {200, 502}
        assert twice(running, numbers) == []
        assert running.asked_of.keys() >= set(numbers)
        await running.at_rest()


@pytest.mark.parametrize(
    ("body", "begun", "resets"),
    [(PLAIN, len(ANSWER) - 3, True), (STREAM, len(SSE_HEAD) + 3, True), (STREAM, len(SSE_HEAD) + 3, False)],
    ids=["plain, reset", "stream, reset", "stream, closed"],
)
async def test_an_answer_that_has_begun_is_never_begun_again(body: dict[str, object], begun: int, resets: bool) -> None:
    async with site() as running:
        cut = Fault(response_bytes=begun, resets=resets)
        running.engines[0].way.choose = every(2, cut)
        numbers = await running.load(CLIENTS, EACH, body)
        assert twice(running, numbers) == []
        assert running.asked_of.keys() >= set(numbers)
        broken = [number for number in numbers if not complete(running, number)]
        assert len(broken) <= running.engines[0].way.faulty
        assert running.engines[0].way.faulty
        await running.at_rest()


def complete(running: Site, number: str) -> bool:
    """Whether the client of a number got all of its answer."""
    answer = running.answers[number]
    return answer is not None and answer.status == 200 and b'"error"' not in answer.body


@pytest.mark.parametrize("fault", [Fault(deaf=True), Fault(mute=True)], ids=["black hole", "half open"])
async def test_a_replica_that_says_nothing_costs_time_and_nothing_else(fault: Fault) -> None:
    """Whether the engine works on it cannot be known: the client is told in time, and nobody is asked twice."""
    async with site(first_byte_s=0.3) as running:
        running.engines[0].way.choose = lambda: fault
        numbers = await running.load(CLIENTS, 2, PLAIN)
        assert set(running.statuses(numbers)) <= {200, 504}
        assert running.statuses(numbers)[200]
        assert twice(running, numbers) == []
        running.engines[0].way.choose = lambda: NONE
        after = await running.load(CLIENTS, 2, PLAIN)
        assert running.statuses(after) == {200: len(after)}
        await running.at_rest()


async def test_a_slow_way_loses_nothing() -> None:
    async with site() as running:
        for engine in running.engines:
            engine.way.choose = lambda: Fault(delay_s=0.02)
        numbers = await running.load(CLIENTS, 4, STREAM)
        assert all(complete(running, number) for number in numbers)
        assert twice(running, numbers) == []
        await running.at_rest()


async def test_of_writes_that_are_lost_here_and_there_only_answers_that_had_begun_suffer() -> None:
    """One write in a hundred ends its connection, on every way."""
    async with site() as running:
        for engine in running.engines:
            engine.way.choose = lambda: Fault(lost=0.01)
        numbers = await running.load(CLIENTS, 2 * EACH, STREAM)
        assert running.faulty
        for number in numbers:
            answer = running.answers[number]
            if answer is None or answer.status != 200 or not complete(running, number):
                assert running.asked_of[number]
        asked_again = twice(running, numbers)
        assert len(asked_again) <= running.faulty
        lost = [number for number in numbers if running.answers[number] is None or not complete(running, number)]
        assert len(lost) + len(asked_again) <= running.faulty
        await running.at_rest()


async def test_a_replica_restarts_under_load_and_nobody_notices() -> None:
    async with site() as running:
        engine = running.engines[0]
        load = asyncio.create_task(running.load(CLIENTS, 4 * EACH, PLAIN))
        for _ in range(2):
            before = len(running.answers)
            await engine.stop()
            await until(lambda seen=before: len(running.answers) > seen + CLIENTS or load.done())  # type: ignore[misc]
            await engine.start()
        numbers = await load
        assert running.statuses(numbers) == {200: len(numbers)}
        assert await running.house.metric("steplane_requests_total") == len(numbers)
        await running.at_rest()


async def test_a_request_that_all_replicas_fail_gets_an_answer() -> None:
    async with site() as running:
        for engine in running.engines:
            engine.way.choose = lambda: Fault(refuses=True)
        numbers = await running.load(2, 2, PLAIN)
        assert set(running.statuses(numbers)) <= {502, 503}
        assert running.asked_of.total() == 0
        await running.at_rest()
