"""How Prometheus reads the closed loop: breakers, admission, step feeds, the cost book and the shared store.

Text is made when `/metrics` is scraped. Labels come from the configuration and from short fixed lists, never from a
request: no signature and no tenant.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.breaker.record import Kind, State
from gateway.breaker.replicastates import ReplicaState
from gateway.control.context import AdminContext
from gateway.control.exposition import in_parts
from gateway.control.families import counted
from gateway.feed.sources import Source
from gateway.routing.replica import Replica

_REPLICA = ("pool", "replica")


class TrustMetrics(Collector):
    """The loop's state and counters over the pools of one gateway, in Prometheus' form."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        """Everything in Prometheus' form."""
        yield from self._quarantine()
        yield from self._admission()
        for part in in_parts(self._context.router.pools):
            yield self._replica_breakers(part)
            yield from self._booked(part)
            yield from self._feeds(part)
            yield from self._steps(part)
        yield from self._memory()

    def _quarantine(self) -> Iterator[Metric]:
        quarantined = GaugeMetricFamily(
            "steplane_quarantined",
            "Cost signatures and tenants whose breaker is not closed, by its state.",
            labels=("kind", "state"),
        )
        count = self._context.trust.count()
        for kind in Kind:
            for state in State:
                if state is not State.closed:
                    quarantined.add_metric((kind.value, state.value), count[kind, state])
        yield quarantined

        yield counted(
            "steplane_breaker_transitions",
            "Changes of breakers, of signatures, tenants and replicas, by state before and after; other gateways' too.",
            ("kind", "before", "after"),
            self._context.transitions.items(),
        )
        tally = self._context.tally
        yield counted(
            "steplane_quarantined_requests",
            "Requests that were not let into the pool that their rule names, by it and by what came of them.",
            ("pool", "outcome"),
            tally.quarantined.items(),
        )
        yield counted(
            "steplane_evicted_requests",
            "Running requests of a signature that tripped, by their pool and by what came of them.",
            ("pool", "outcome"),
            tally.evicted.items(),
        )

    def _replica_breakers(self, replicas: Iterable[Replica]) -> Metric:
        states = GaugeMetricFamily(
            "steplane_replica_breaker",
            "1 for the state that a replica's breaker is in, 0 for the others.",
            labels=(*_REPLICA, "state"),
        )
        for replica in replicas:
            now = self._context.breakers[replica.pool].state(replica.name)
            for state in ReplicaState:
                states.add_metric((replica.pool, replica.name, state.value), float(state is now))
        return states

    def _admission(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily("steplane_queue_requests", "Requests that wait for room now.", labels=("pool",))
        oldest = GaugeMetricFamily(
            "steplane_queue_oldest_seconds", "How long the one that waits longest has waited.", labels=("pool",)
        )
        left = CounterMetricFamily(
            "steplane_queue_left_requests",
            "Requests that wait no more: admitted, full (429), late (503), left (client gone), homeless (pool gone).",
            labels=("pool", "outcome"),
        )
        for pool in self._context.router.pools.values():
            queue = self._context.queues[pool.name]
            waiting.add_metric((pool.name,), len(queue))
            oldest.add_metric((pool.name,), cast(float, queue.snapshot()["oldest_s"]))
            outcomes = ("admitted", "full", "late", "left", "homeless")
            counts = (queue.admitted, queue.full, queue.late, queue.left, queue.homeless)
            for outcome, requests in zip(outcomes, counts, strict=True):
                left.add_metric((pool.name, outcome), requests)
        yield from (waiting, oldest, left)

    def _booked(self, replicas: Iterable[Replica]) -> Iterator[Metric]:
        booked = GaugeMetricFamily(
            "steplane_booked_step_seconds",
            "Hook time for each step that the requests running on a replica are expected to take together.",
            labels=_REPLICA,
        )
        structured = GaugeMetricFamily(
            "steplane_structured_requests", "Requests with a grammar that run on a replica now.", labels=_REPLICA
        )
        for replica in replicas:
            booked.add_metric((replica.pool, replica.name), replica.booked_us / 1e6)
            structured.add_metric((replica.pool, replica.name), replica.structured)
        yield from (booked, structured)

    def _feeds(self, replicas: Iterable[Replica]) -> Iterator[Metric]:
        source = GaugeMetricFamily(
            "steplane_feed_source",
            "1 for the source that the gateway has on a replica's steps, 0 for the others; best first: "
            f"{', '.join(Source)}.",
            labels=(*_REPLICA, "source"),
        )
        lag = GaugeMetricFamily(
            "steplane_feed_lag_seconds",
            "Age of the last roll-up of a replica's step feed when it arrived.",
            labels=_REPLICA,
        )
        records = CounterMetricFamily(
            "steplane_feed_records", "Records that were read from a replica's step feed.", labels=_REPLICA
        )
        lost = CounterMetricFamily(
            "steplane_feed_lost_records", "Records that were overwritten before they were read.", labels=_REPLICA
        )
        unattributed = CounterMetricFamily(
            "steplane_feed_unattributed_records",
            "Records about requests that are not this gateway's, or long over.",
            labels=_REPLICA,
        )
        starved = CounterMetricFamily(
            "steplane_feed_starved_steps",
            "Steps in which the step thread waited for a CPU, so that no request was blamed.",
            labels=_REPLICA,
        )
        for replica in replicas:
            status = self._context.senses.status_of(replica.name)
            if status is None:  # it has just left
                continue
            labels = (replica.pool, replica.name)
            for each in Source:
                source.add_metric((*labels, each.value), float(each is status.source))
            if status.lag_s is not None:
                lag.add_metric(labels, status.lag_s)
            records.add_metric(labels, status.records)
            lost.add_metric(labels, status.lost)
            unattributed.add_metric(labels, status.unattributed)
            starved.add_metric(labels, status.starved)
        yield from (source, lag, records, lost, unattributed, starved)

    def _steps(self, replicas: Iterable[Replica]) -> Iterator[Metric]:
        steps = CounterMetricFamily("steplane_steps", "Steps that have ended, as the feed tells.", labels=_REPLICA)
        seconds = CounterMetricFamily(
            "steplane_step_seconds",
            "What these steps took: in all, in the model's forward pass, and in hooks of requests.",
            labels=(*_REPLICA, "part"),
        )
        for replica in replicas:
            totals = self._context.steps.get(replica.name)
            if totals is None:
                continue
            labels = (replica.pool, replica.name)
            steps.add_metric(labels, totals.steps)
            for part, spent_s in (("all", totals.step_s), ("forward", totals.forward_s), ("hooks", totals.hook_s)):
                seconds.add_metric((*labels, part), spent_s)
        yield from (steps, seconds)

    def _memory(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "steplane_cost_book_signatures", "Cost signatures of which something was observed.", len(self._context.book)
        )
        status = self._context.store.status()
        connected = GaugeMetricFamily(
            "steplane_state_connected",
            "1 while the store of breakers and costs can be reached, else 0; the one in memory always can.",
            labels=("kind",),
        )
        connected.add_metric((status.kind,), float(status.connected))
        yield connected
        yield GaugeMetricFamily(
            "steplane_state_pending_changes", "Keys with changes that other gateways don't know yet.", status.pending
        )
        yield CounterMetricFamily(
            "steplane_state_dropped_changes", "Changes and counters given up for want of room.", status.dropped
        )
        if status.latency_ms is not None:
            yield GaugeMetricFamily(
                "steplane_state_latency_seconds", "Round trip of the last exchange.", status.latency_ms / 1e3
            )
