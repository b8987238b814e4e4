from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.feed.sources import ReplicaProgress
from tests.unit.control.admins import BOMB, OTHER, Admin, running_admin


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with running_admin() as running:
        yield running


async def scraped(admin: Admin) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, in the order of the labels' names."""
    text = (await admin.client.get("/metrics")).text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_what_is_quarantined_is_counted_by_kind_and_state(admin: Admin) -> None:
    assert (await scraped(admin))["steplane_quarantined", "signature", "open"] == 0

    admin.trip(BOMB)
    admin.trip(OTHER)
    await admin.client.post("/api/v1/quarantine", json={"tenant": "a", "pin": True, "author": "s", "reason": "r"})

    samples = await scraped(admin)
    assert samples["steplane_quarantined", "signature", "open"] == 2
    assert samples["steplane_quarantined", "signature", "half_open"] == 0
    assert samples["steplane_quarantined", "tenant", "pinned"] == 1
    assert samples["steplane_breaker_transitions_total", "open", "closed", "signature"] == 2
    assert samples["steplane_breaker_transitions_total", "pinned", "closed", "tenant"] == 1
    assert samples[("steplane_cost_book_signatures",)] == 2


async def test_no_label_comes_from_a_request(admin: Admin) -> None:
    admin.trip(BOMB, tenant="tenant-of-a-request")
    admin.run(OTHER, tenant="tenant-of-a-request")

    text = (await admin.client.get("/metrics")).text

    assert not any(name in text for name in (BOMB, OTHER, "tenant-of-a-request"))


async def test_requests_that_went_elsewhere_are_counted_by_what_came_of_them(admin: Admin) -> None:
    tally = admin.context.tally
    tally.quarantined["interactive", "quarantine"] += 3
    tally.evicted["interactive", "rerun"] += 2

    samples = await scraped(admin)

    assert samples["steplane_quarantined_requests_total", "quarantine", "interactive"] == 3
    assert samples["steplane_evicted_requests_total", "rerun", "interactive"] == 2


async def test_booked_budget_and_grammars_are_told_by_replica_and_waiting_by_pool(admin: Admin) -> None:
    pool = admin.context.router.pools["interactive"]
    pool.book(pool.replicas[0], 400.0, structured=True)

    samples = await scraped(admin)

    assert samples["steplane_booked_step_seconds", "interactive", "i1"] == pytest.approx(0.0004)
    assert samples["steplane_structured_requests", "interactive", "i1"] == 1
    assert samples["steplane_queue_requests", "interactive"] == 0
    assert samples["steplane_queue_oldest_seconds", "interactive"] == 0
    assert samples["steplane_queue_left_requests_total", "admitted", "interactive"] == 0


@pytest.mark.parametrize("name", ["steplane_replica_breaker", "steplane_feed_source"])
async def test_of_the_states_of_a_replica_exactly_one_is_1(admin: Admin, name: str) -> None:
    samples = await scraped(admin)

    for pool, replica in (("interactive", "i1"), ("grammar", "g1"), ("quarantine", "q1")):
        states = {key[3]: value for key, value in samples.items() if key[:3] == (name, pool, replica)}
        assert sorted(states.values())[-2:] == [0, 1]
        assert sum(states.values()) == 1


async def test_time_of_steps_adds_up_over_reports(admin: Admin) -> None:
    for _ in range(2):
        admin.oversight.progress(ReplicaProgress("i1", 0.0, 100, 5000.0, 9000.0, 3000.0, 1500.0, 4.0, 0.0, 0.0))

    samples = await scraped(admin)

    assert samples["steplane_steps_total", "interactive", "i1"] == 200
    assert samples["steplane_step_seconds_total", "all", "interactive", "i1"] == pytest.approx(1.0)
    assert samples["steplane_step_seconds_total", "forward", "interactive", "i1"] == pytest.approx(0.6)
    assert samples["steplane_step_seconds_total", "hooks", "interactive", "i1"] == pytest.approx(0.3)


async def test_the_store_in_memory_is_always_connected(admin: Admin) -> None:
    samples = await scraped(admin)

    assert samples["steplane_state_connected", "memory"] == 1
    assert samples[("steplane_state_pending_changes",)] == 0
    assert samples[("steplane_state_dropped_changes_total",)] == 0
