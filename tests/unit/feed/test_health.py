import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from gateway.feed.health import HealthMonitor, HealthPolicy, HealthRecord


def record_with(eject_after: int = 3, readmit_after: int = 2) -> HealthRecord:
    return HealthRecord(HealthPolicy(eject_after=eject_after, readmit_after=readmit_after), since=0.0)


@pytest.mark.parametrize(
    ("probes", "states"),
    [
        # + good, - failed, ! refused; states after each probe: u up, d down
        ("+", "u"),
        ("-", "d"),
        ("--+", "ddd"),
        ("--++", "dddu"),
        ("+--+--+", "uuuuuuu"),
        ("+---", "uuud"),
        ("+---+-++", "uuuddddu"),
        ("+!", "ud"),
        ("+!+", "udd"),
        ("+!++", "uddu"),
        ("+-!", "uud"),
        ("!", "d"),
    ],
)
def test_a_replica_is_ejected_and_readmitted_by_probes_in_a_row(probes: str, states: str) -> None:
    record = record_with(eject_after=3, readmit_after=2)
    seen = ""
    for at, probe in enumerate(probes):
        was_up = record.up
        if probe == "+":
            changed = record.succeed(float(at), 0.001)
        else:
            changed = record.fail(float(at), "broken", conclusive=probe == "!")
        assert changed is (record.up is not was_up)
        seen += "u" if record.up else "d"

    assert seen == states


def test_a_record_tells_since_when_and_why() -> None:
    record = record_with(eject_after=2, readmit_after=1)

    record.succeed(1.0, 0.25)
    assert (record.up, record.since, record.last_error, record.latency_s) == (True, 1.0, None, 0.25)

    record.fail(5.0, "/health answered 503")
    assert (record.up, record.since, record.last_error) == (True, 1.0, "/health answered 503")

    record.fail(6.0, "no answer on /health within 2 s")
    assert (record.up, record.since, record.last_error) == (False, 6.0, "no answer on /health within 2 s")
    assert record.failures_in_row == 2

    record.succeed(7.0, 0.5)
    assert (record.up, record.since, record.last_error) == (True, 7.0, None)


class Watched:
    """What the monitor needs of a replica; tells when it is made available and when not."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self._down.set()

    @property
    def available(self) -> bool:
        return self._up.is_set()

    def set_healthy(self, healthy: bool) -> None:
        now, no_more = (self._up, self._down) if healthy else (self._down, self._up)
        now.set()
        no_more.clear()

    async def is_up(self) -> None:
        await self._up.wait()

    async def is_down(self) -> None:
        await self._down.wait()


class Engine:
    """A replica on a real socket whose health is what the test says; every probe that it got is an event."""

    def __init__(self) -> None:
        self.status = 200
        self.hangs = False
        self.models: list[str] | None = None
        """What `/v1/models` lists; None: it does not say."""
        self.port = 0
        self.probed: asyncio.Queue[str] = asyncio.Queue()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def replica(self, name: str = "r1") -> Watched:
        return Watched(name, f"http://127.0.0.1:{self.port}")

    async def _answer(self, request: web.Request) -> web.Response:
        self.probed.put_nowait(request.path)
        if self.hangs:
            await asyncio.Event().wait()
        if request.path == "/v1/models" and self.models is not None:
            return web.json_response({"data": [{"id": model} for model in self.models]})
        if request.path in ("/v1/models", "/server_info"):
            return web.Response(status=404)
        return web.Response(status=self.status, headers={"location": "/elsewhere"})


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine()
    await engine.start()
    yield engine
    await engine.stop()


Watch = Callable[[Watched, HealthPolicy], Awaitable[HealthMonitor]]


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    """Starts a monitor over one replica and closes it after the test."""
    monitors: list[HealthMonitor] = []

    async def start(replica: Watched, policy: HealthPolicy) -> HealthMonitor:
        loop = asyncio.get_running_loop()
        monitor = HealthMonitor([(replica, policy)], clock=loop.time, random_source=random.Random(1))
        monitors.append(monitor)
        await monitor.start()
        return monitor

    yield start
    for monitor in monitors:
        await monitor.close()


FAST = HealthPolicy(path="/health", interval_s=0.02, timeout_s=5.0, eject_after=3, readmit_after=1)
SELDOM = HealthPolicy(path="/health", interval_s=3600.0, timeout_s=5.0, eject_after=3, readmit_after=1)


async def test_a_replica_is_probed_at_once_and_taken_in_on_its_first_good_answer(engine: Engine, watch: Watch) -> None:
    replica = engine.replica()

    monitor = await watch(replica, SELDOM)

    assert not replica.available
    await monitor.wait_all_up()
    assert replica.available
    assert monitor.all_probed
    assert engine.probed.get_nowait() == "/health"
    assert engine.probed.empty()


@pytest.mark.parametrize("status", [204, 302, 404, 500, 503])
async def test_any_answer_but_200_keeps_a_replica_out(engine: Engine, watch: Watch, status: int) -> None:
    engine.status = status
    replica = engine.replica()

    monitor = await watch(replica, FAST)
    await monitor.wait_all_probed()

    assert not replica.available
    assert monitor.record(replica).last_error == f"/health answered {status}"


async def test_a_replica_that_answers_badly_is_ejected_after_some_probes_and_taken_back(
    engine: Engine, watch: Watch
) -> None:
    replica = engine.replica()
    monitor = await watch(replica, FAST)
    await monitor.wait_all_up()

    engine.status = 503
    await replica.is_down()
    assert monitor.record(replica).failures_in_row >= 3
    assert monitor.record(replica).last_error == "/health answered 503"

    engine.status = 200
    await replica.is_up()
    assert monitor.record(replica).last_error is None


async def test_silence_counts_as_a_failure_after_the_timeout(engine: Engine, watch: Watch) -> None:
    engine.hangs = True
    replica = engine.replica()

    monitor = await watch(replica, HealthPolicy(path="/slow", interval_s=60.0, timeout_s=0.05))
    await monitor.wait_all_probed()

    assert not replica.available
    assert monitor.record(replica).last_error == "no answer on /slow within 0.05 s"


async def test_silence_is_not_held_against_a_replica_whose_responses_make_progress(engine: Engine) -> None:
    engine.hangs = True
    replica, loop = engine.replica(), asyncio.get_running_loop()
    policy = HealthPolicy(path="/slow", interval_s=0.01, timeout_s=0.02, eject_after=1)
    sending = True
    monitor = HealthMonitor(
        [(replica, policy)], clock=loop.time, last_progress=lambda _: loop.time() if sending else 0.0
    )
    await monitor.start()
    for _ in range(3):
        await engine.probed.get()
    assert monitor.record(replica).failures_in_row == 0

    sending = False
    while monitor.record(replica).failures_in_row == 0:
        await engine.probed.get()
    await monitor.close()


async def test_a_refused_probe_ejects_at_once_and_a_restart_is_noticed(engine: Engine, watch: Watch) -> None:
    replica = engine.replica()
    monitor = await watch(replica, HealthPolicy(interval_s=0.02, timeout_s=5.0, eject_after=1_000_000, readmit_after=1))
    await monitor.wait_all_up()

    await engine.stop()
    await replica.is_down()
    assert monitor.record(replica).last_error == "connection refused"

    await engine.start()
    await replica.is_up()


async def test_a_refusal_seen_by_the_data_plane_ejects_now_and_brings_the_next_probe_forward(
    engine: Engine, watch: Watch
) -> None:
    replica = engine.replica()
    monitor = await watch(replica, SELDOM)
    await monitor.wait_all_up()
    engine.probed.get_nowait()

    monitor.report_refused(replica)

    assert not replica.available
    assert monitor.record(replica).last_error == "connection refused"
    # The next regular probe would be in an hour.
    await engine.probed.get()
    await replica.is_up()


async def test_a_replica_that_is_down_is_asked_far_more_often_than_one_that_is_up(engine: Engine, watch: Watch) -> None:
    replica = engine.replica()
    monitor = await watch(replica, SELDOM)
    await monitor.wait_all_up()
    await engine.stop()
    monitor.report_refused(replica)

    await engine.start()

    # With the interval of a healthy replica this would take an hour.
    await replica.is_up()


async def test_reports_about_replicas_that_are_down_or_unknown_change_nothing(engine: Engine, watch: Watch) -> None:
    engine.status = 500
    replica = engine.replica()
    monitor = await watch(replica, SELDOM)
    await monitor.wait_all_probed()

    monitor.report_refused(replica)
    monitor.report_refused(engine.replica("stranger"))

    assert monitor.record(replica).last_error == "/health answered 500"


async def test_a_name_that_does_not_resolve_is_a_failure_that_says_so(watch: Watch) -> None:
    replica = Watched("r1", "http://replica.invalid:1")

    monitor = await watch(replica, SELDOM)
    await monitor.wait_all_probed()

    assert not replica.available
    assert "replica.invalid:1" in (monitor.record(replica).last_error or "")


async def test_one_silent_replica_does_not_delay_the_others(engine: Engine) -> None:
    silent = Engine()
    silent.hangs = True
    await silent.start()
    quick, slow = engine.replica("quick"), silent.replica("slow")
    monitor = HealthMonitor([(slow, SELDOM), (quick, SELDOM)], clock=asyncio.get_running_loop().time)

    await monitor.start()
    await silent.probed.get()
    await quick.is_up()

    assert not slow.available
    assert not monitor.all_probed
    await monitor.close()
    await silent.stop()


async def test_closing_stops_every_probe_and_leaves_no_task(engine: Engine) -> None:
    before = asyncio.all_tasks()
    monitor = HealthMonitor([(engine.replica(), FAST)], clock=asyncio.get_running_loop().time)
    await monitor.start()
    await monitor.wait_all_up()

    await monitor.close()

    watchers = {task for task in asyncio.all_tasks() - before if task.get_name().startswith("health of")}
    assert watchers == set()
    await monitor.close()


async def test_a_monitor_without_replicas_has_probed_all_of_them() -> None:
    monitor = HealthMonitor([], clock=asyncio.get_running_loop().time)

    await monitor.start()

    await monitor.wait_all_up()
    assert monitor.all_probed
    await monitor.close()


async def test_the_age_of_a_state_is_told_by_the_clock_that_was_given(engine: Engine) -> None:
    now = 100.0
    replica = engine.replica()
    monitor = HealthMonitor([(replica, SELDOM)], clock=lambda: now)
    await monitor.start()
    await monitor.wait_all_up()

    now = 107.5

    assert monitor.state_age_s(replica) == 7.5
    await monitor.close()


@pytest.mark.parametrize(
    ("models", "up"), [(["m"], True), (["m", "adapter"], True), (["other"], False), ([], False), (None, True)]
)
async def test_a_replica_that_serves_another_model_takes_no_traffic_and_says_so(
    engine: Engine, watch: Watch, models: list[str] | None, up: bool
) -> None:
    engine.models = models
    replica = engine.replica()
    monitor = await watch(replica, HealthPolicy(interval_s=0.02, model="m"))
    await asyncio.wait_for(monitor.wait_all_probed(), 10)

    assert replica.available is up
    if not up:
        said = monitor.record(replica).last_error
        assert said == f"it serves {', '.join(models or []) or 'no model'} where m is wanted"
        engine.models = ["m"]
        await asyncio.wait_for(replica.is_up(), 10)


async def test_replicas_come_go_and_change_their_policy_while_others_are_probed(engine: Engine, watch: Watch) -> None:
    first, second = engine.replica("r1"), engine.replica("r2")
    monitor = await watch(first, HealthPolicy(interval_s=0.02))
    await asyncio.wait_for(first.is_up(), 10)

    monitor.add(second, HealthPolicy(path="/other", interval_s=0.02))
    await asyncio.wait_for(second.is_up(), 10)
    monitor.reconfigure(second, HealthPolicy(path="/changed", interval_s=0.02))
    while await asyncio.wait_for(engine.probed.get(), 10) != "/changed":
        pass

    monitor.remove(first)
    with pytest.raises(KeyError):
        monitor.record(first)
    assert first.available
    assert monitor.all_probed


@pytest.mark.parametrize(
    ("probes", "fresh"),
    [
        # + good, - answered badly, ! refused, . silent; whether it may have been started anew at the end
        ("", True),
        ("-", True),
        ("+", False),
        ("+-", False),
        ("+-+", False),
        ("+---", True),
        ("+!", True),
        ("+!+", False),
        ("+...", False),
        ("+....", False),
        ("+...!", True),
        ("+...+", False),
        ("+--.", False),
        ("+--.-", True),
    ],
)
def test_one_that_was_down_and_not_merely_silent_may_have_been_started_anew(probes: str, fresh: bool) -> None:
    record = record_with(eject_after=3, readmit_after=1)
    for at, probe in enumerate(probes):
        if probe == "+":
            record.succeed(float(at), 0.001)
            record.fresh = False  # as the monitor does, which tells of it
        else:
            record.fail(float(at), "broken", conclusive=probe == "!", silent=probe == ".")
    assert record.fresh is fresh


async def test_who_may_have_been_started_anew_is_told_of_before_it_takes_traffic(engine: Engine, watch: Watch) -> None:
    replica = engine.replica()
    monitor = await watch(replica, SELDOM)
    told: list[bool] = []
    third = asyncio.Event()

    def started(target: Watched) -> None:
        told.append(target.available)
        if len(told) == 3:
            third.set()

    monitor.started = started
    await monitor.wait_all_up()
    assert told == [False]

    monitor.report_refused(replica)
    await replica.is_up()
    assert told == [False, False]

    monitor.report_ended(replica)
    await third.wait()
    assert told == [False, False, True]
    monitor.report_ended(engine.replica("stranger"))


async def test_what_its_listener_raises_does_not_keep_a_replica_down(engine: Engine, watch: Watch) -> None:
    replica = engine.replica()
    monitor = await watch(replica, SELDOM)

    def raises(_: object) -> None:
        raise RuntimeError("listener")

    monitor.started = raises
    await monitor.wait_all_up()
    assert replica.available


async def test_a_replica_whose_engine_ended_is_asked_for_its_model_again(engine: Engine, watch: Watch) -> None:
    engine.models = ["m"]
    replica = engine.replica()
    monitor = await watch(replica, HealthPolicy(interval_s=3600.0, model="m"))
    await monitor.wait_all_up()
    engine.models = ["other"]
    monitor.report_ended(replica)
    await replica.is_down()
    assert monitor.record(replica).last_error == "it serves other where m is wanted"
