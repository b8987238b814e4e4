import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway import __version__
from gateway.control.metrics import Metrics, create_registry
from gateway.control.tally import Tally
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import Decision, Rejection


def pools() -> dict[str, Pool]:
    return {
        "interactive": Pool("interactive", (Replica("a", "http://h:1", "h", 1, pool="interactive", available=True),)),
        "grammar": Pool("grammar", (Replica("b", "http://h:2", "h", 2, pool="grammar"),), step_budget_us=2000.0),
    }


def scraped(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, in the order of the labels' names."""
    text = generate_latest(create_registry(metrics)).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_requests_are_counted_by_pool_rule_and_class_of_status() -> None:
    metrics = Metrics(by_name := pools(), tally := Tally())
    plain, other = Decision(by_name["interactive"], "default"), Decision(by_name["interactive"], "r2")
    rejected = Decision(None, "default", rejection=Rejection(503, "pool_unavailable", "none", 1))

    for status in (200, 201, 404):
        tally.finished(plain, status, False, 0.5)
    tally.finished(other, 200, False, 0.5)
    tally.finished(rejected, 503, False, 0.5)
    tally.finished(plain, 0, True, -1.0)

    samples = scraped(metrics)
    assert samples["steplane_requests_total", "interactive", "default", "2xx"] == 2
    assert samples["steplane_requests_total", "interactive", "default", "4xx"] == 1
    assert samples["steplane_requests_total", "interactive", "default", "0xx"] == 1
    assert samples["steplane_requests_total", "interactive", "r2", "2xx"] == 1
    assert samples["steplane_requests_total", "", "default", "5xx"] == 1
    assert sum(value for key, value in samples.items() if key[0] == "steplane_requests_total") == 6
    assert samples[("steplane_client_disconnects_total",)] == 1


def test_spills_are_counted_by_where_from_and_where_to() -> None:
    metrics = Metrics(by_name := pools(), tally := Tally())

    for _ in range(3):
        tally.finished(Decision(by_name["grammar"], "default", spilled_from="interactive"), 200, False, 0.5)

    assert scraped(metrics)["steplane_spilled_requests_total", "interactive", "grammar"] == 3


@pytest.mark.parametrize(
    ("seconds", "first_bucket"),
    [(0.0, "0.005"), (0.005, "0.005"), (0.0051, "0.01"), (1.7, "2.5"), (299.0, "300.0"), (301.0, "+Inf")],
)
def test_the_time_to_the_first_byte_falls_into_the_first_bucket_that_holds_it(
    seconds: float, first_bucket: str
) -> None:
    metrics = Metrics(by_name := pools(), tally := Tally())

    tally.finished(Decision(by_name["interactive"], "default"), 200, False, seconds)

    samples = scraped(metrics)
    ours = {
        key[1]: value
        for key, value in samples.items()
        if key[0] == "steplane_ttft_seconds_bucket" and key[2] == "interactive"
    }
    assert next(bound for bound, count in ours.items() if count) == first_bucket
    assert ours["+Inf"] == samples["steplane_ttft_seconds_count", "interactive"] == 1
    assert samples["steplane_ttft_seconds_sum", "interactive"] == pytest.approx(seconds)
    assert samples["steplane_ttft_seconds_count", "grammar"] == 0


def test_faults_are_counted_by_whose_they_were() -> None:
    metrics = Metrics(pools(), tally := Tally())

    tally.upstream_error("grammar", "b", "connect_failed")
    tally.upstream_error("grammar", "b", "connect_failed")
    tally.refused("invalid_json")

    samples = scraped(metrics)
    assert samples["steplane_upstream_errors_total", "connect_failed", "grammar", "b"] == 2
    assert samples["steplane_refused_requests_total", "invalid_json"] == 1


def test_the_state_of_the_replicas_is_read_when_it_is_scraped() -> None:
    metrics = Metrics(by_name := pools(), Tally())
    replica = by_name["grammar"].replicas[0]
    before = scraped(metrics)

    replica.set_healthy(True)
    for _ in range(7):
        by_name["grammar"].book(replica)

    after = scraped(metrics)
    assert before["steplane_replica_up", "grammar", "b"] == 0
    assert after["steplane_replica_up", "grammar", "b"] == 1
    assert after["steplane_replica_up", "interactive", "a"] == 1
    assert after["steplane_in_flight_requests", "grammar", "b"] == 7
    assert after["steplane_step_budget_seconds", "grammar"] == 0.002
    assert ("steplane_step_budget_seconds", "interactive") not in after
    assert after["steplane_build_info", __version__] == 1
    assert after[("process_open_fds",)] > 0
