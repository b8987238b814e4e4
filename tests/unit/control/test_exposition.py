"""What `/metrics` says is well formed, by two readers that do not know each other, and has what an operator needs."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from gateway.feed.sources import ReplicaProgress
from gateway.hookcost import Classification
from gateway.hookcost.cost import HookCost
from gateway.hookcost.features import Features
from gateway.hookcost.observation import RollupObservation
from gateway.routing.router import Decision
from tests.unit.control.admins import BOMB, Admin, running_admin
from tests.unit.control.expositions import read

TRACE = "0af7651916cd43dd8448eb211c80319c"
AWKWARD = 'a "tenant" with \\ and\na line'


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    """Of everything that is counted there is something."""
    async with running_admin() as admin:
        context, tally = admin.context, admin.context.tally
        pools = context.router.pools
        tally.finished(Decision(pools["interactive"], "default"), 200, False, 0.07)
        tally.finished(Decision(pools["grammar"], "structured", spilled_from="interactive"), 503, True, 2.0)
        tally.exemplar("interactive", 0.07, TRACE)
        tally.by_tenant[AWKWARD] = [0, 0, 3, 0, 1, 0, 0, 0, 0, 0]
        tally.upstream_error("interactive", "i1", "connect_failed")
        tally.retries["interactive", "connect_failed"] += 1
        tally.hedges["interactive", "sent"] += 1
        tally.refused("invalid_json")
        admin.trip()
        rollup = RollupObservation(admin.origin(), admin.now_s, 10, 4000.0, 500.0, {"grammar_fill": 4000.0})
        context.book.blended(Classification(Features(), HookCost(step_us=100.0), BOMB))
        admin.oversight.rollup(rollup)
        progress = ReplicaProgress("i1", 0.0, 100, 20_000.0, 30_000.0, 19_000.0, 400.0, 8.0, 0.0, 0.0)
        context.pool_steps.progress("interactive", progress)
        yield admin


async def scrape(admin: Admin, accept: str = "text/plain") -> str:
    reply = await admin.client.get("/metrics", headers={"accept": accept})
    assert reply.status_code == 200
    return reply.text


async def test_two_readers_read_the_same(admin: Admin) -> None:
    text = await scrape(admin)

    theirs = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    ours = {key: value for family in read(text).values() for key, value in family.samples.items()}
    assert ours == theirs
    assert ours["steplane_tenant_requests_total", (("status", "2xx"), ("tenant", AWKWARD))] == 3


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("# HELP a_total x\n# TYPE a_total counter\na_total 1\na_total 1\n", "twice"),
        ("# HELP a x\n# TYPE a counter\na 1\n", "without _total"),
        ("# TYPE a gauge\na 1\n", "does not follow"),
        ('# HELP a x\n# TYPE a gauge\na{b="c",b="d"} 1\n', "twice"),
        ("# HELP a x\n# TYPE a gauge\na 1", "no end"),
    ],
)
def test_our_reader_is_strict(broken: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        read(broken)


async def test_openmetrics_has_the_traces_of_slow_requests(admin: Admin) -> None:
    text = await scrape(admin, "application/openmetrics-text; version=1.0.0")

    exemplars = [
        (family.name, sample.labels["le"], sample.exemplar)
        for family in read_openmetrics(text)
        for sample in family.samples
        if sample.exemplar is not None
    ]
    assert [(name, bound, each.labels, each.value) for name, bound, each in exemplars] == [
        ("steplane_ttft_seconds", "0.1", {"trace_id": TRACE}, 0.07)
    ]
    assert TRACE not in await scrape(admin)


async def test_steps_and_predictions_are_distributed(admin: Admin) -> None:
    families = read(await scrape(admin))

    pool = ("pool", "interactive")
    steps = families["steplane_step_duration_seconds"].samples
    assert steps["steplane_step_duration_seconds_count", (pool,)] == 100
    assert steps["steplane_step_duration_seconds_sum", (pool,)] == pytest.approx(2.0)
    assert steps["steplane_step_duration_seconds_bucket", (("le", "0.01"), pool)] == 0
    assert steps["steplane_step_duration_seconds_bucket", (("le", "0.02"), pool)] == 100
    ratios = families["steplane_prediction_ratio"].samples
    assert ratios["steplane_prediction_ratio_bucket", (("le", "2.0"), pool)] == 0
    assert ratios["steplane_prediction_ratio_bucket", (("le", "4.0"), pool)] == 1
    assert ratios["steplane_prediction_ratio_sum", (pool,)] == pytest.approx(4.0)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
async def test_promtool_finds_nothing_to_say(admin: Admin) -> None:
    text = await scrape(admin)
    command = ["promtool", "check", "metrics"]
    found = await asyncio.to_thread(subprocess.run, command, input=text.encode(), capture_output=True, check=False)

    assert (found.returncode, found.stderr) == (0, b"")
