"""`/metrics` with SGLang's names (`observability/metrics_collector.py`, 0.5.23). Knows no HTTP.

Gauges and stage counters are read from the engine when scraped; only request events are counted as they happen.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from replica.simulator.engine import Engine
from replica.simulator.sequence import Output
from replica.simulator.settings import Settings

if TYPE_CHECKING:
    from replica.simulator.frontend import Choice

_FIRST_TOKEN = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_INTER_TOKEN = (
    *(0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080),
    *(0.100, 0.200, 0.400, 0.600, 0.800, 1.0, 2.0, 4.0, 6.0, 8.0),
)
_END_TO_END = (*_FIRST_TOKEN, 600, 1200, 1800, 2400)


class Metrics:
    """The request side. One per replica."""

    def __init__(self, settings: Settings) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": settings.model_name, "engine_type": "unified"}
        names = [*self._labels]
        streaming = [*names, "is_streaming"]

        def counter(name: str, text: str, labels: list[str]) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, labels: list[str], buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

        self._prompt_tokens = counter("sglang:prompt_tokens", "Number of prefill tokens processed.", streaming)
        self._tokens = counter("sglang:generation_tokens", "Number of generation tokens processed.", streaming)
        self._requests = counter("sglang:num_requests", "Number of requests processed.", streaming)
        self._structured = counter(
            "sglang:num_so_requests", "Number of structured output requests processed.", names
        ).labels(**self._labels)
        self._aborted = counter("sglang:num_aborted_requests", "Number of requests aborted.", names).labels(
            **self._labels
        )
        self._first_token = histogram(
            "sglang:time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            streaming,
            _FIRST_TOKEN,
        )
        self._inter_token = histogram(
            "sglang:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", names, _INTER_TOKEN
        ).labels(**self._labels)
        self._end_to_end = histogram(
            "sglang:e2e_request_latency_seconds",
            "Histogram of End-to-end request latency in seconds",
            streaming,
            _END_TO_END,
        )

    def request(self, prompt_tokens: int, *, stream: bool, grammar: bool) -> None:
        """A sequence was submitted."""
        labels = self._streaming(stream)
        self._prompt_tokens.labels(**labels).inc(prompt_tokens)
        self._requests.labels(**labels).inc()
        if grammar:
            self._structured.inc()

    def output(self, choice: "Choice", output: Output, now_s: float) -> None:
        """A step's output arrived in the front end at `now_s` (`time.perf_counter`)."""
        if output.token is not None:
            if choice.last_s == 0.0:
                self._first_token.labels(**self._streaming(choice.stream)).observe(now_s - choice.arrived_s)
            else:
                self._inter_token.observe(now_s - choice.last_s)
        if output.finish is not None:
            labels = self._streaming(choice.stream)
            self._tokens.labels(**labels).inc(len(choice.sequence.output))
            self._end_to_end.labels(**labels).observe(now_s - choice.arrived_s)
            if output.finish.type == "abort":
                self._aborted.inc()

    def attach(self, engine: Engine, settings: Settings) -> None:
        """Add the engine's own figures to what is exposed."""
        self.registry.register(_EngineCollector(engine, settings, self._labels))

    def expose(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self.registry)

    def _streaming(self, stream: bool) -> dict[str, str]:
        return {**self._labels, "is_streaming": str(stream)}


class _EngineCollector(Collector):
    """The scheduler's side, read at each scrape."""

    def __init__(self, engine: Engine, settings: Settings, labels: dict[str, str]) -> None:
        self._engine = engine
        self._settings = settings
        self._labels = {**labels, "tp_rank": "0", "pp_rank": "0"}

    def collect(self) -> Iterator[Metric]:
        load, settings = self._engine.load, self._settings
        yield self._gauge("num_running_reqs", "The number of running requests.", load.running)
        yield self._gauge("num_queue_reqs", "The number of requests in the waiting queue.", load.waiting)
        yield self._gauge(
            "num_grammar_queue_reqs", "The number of requests in the grammar waiting queue.", load.grammar_queue
        )
        yield self._gauge("num_used_tokens", "The number of used tokens.", load.used_tokens)
        yield self._gauge("token_usage", "The token usage.", load.used_tokens / settings.max_total_tokens)
        yield self._gauge("max_total_num_tokens", "Size of the KV cache in tokens.", settings.max_total_tokens)
        yield self._gauge("context_len", "Context length.", settings.context_length)
        yield self._gauge("gen_throughput", "The generation throughput (token/s).", load.tokens_per_s)
        yield self._gauge("cache_hit_rate", "The prefix cache hit rate.", 0.0)
        yield self._counter("scheduler_idle_seconds", "Wall time without runnable or queued work.", load.idle_s)
        yield self._counter(
            "scheduler_process_cpu_seconds", "CPU time of the process across all threads.", time.process_time()
        )
        yield self._counter(
            "forward_execution_seconds",
            "Total time that the (simulated) GPU is busy executing model forward passes.",
            load.forward_s,
            {"category": "mixed"},
        )
        stages = CounterMetricFamily(
            "sglang:scheduler_stage_seconds",
            "Total scheduler-loop wall time exclusively attributed to each stage.",
            labels=[*self._labels, "category", "forward_overlap"],
        )
        for category, seconds in (
            ("get_next_batch_to_run", load.poll_s),
            ("run_batch", load.forward_s + load.sampling_s),
            ("process_batch_result", load.hooks_s),
        ):
            stages.add_metric([*self._labels.values(), category, "none"], seconds)
        yield stages

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"sglang:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, text: str, value: float, extra: dict[str, str] | None = None) -> Metric:
        labels = {**self._labels, **(extra or {})}
        family = CounterMetricFamily(f"sglang:{name}", text, labels=list(labels))
        family.add_metric(list(labels.values()), value)
        return family
