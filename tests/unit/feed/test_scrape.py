"""What two readings of an engine's metrics say about the time between them."""

import pytest

from gateway.feed.scrape import EngineMetrics, Reading, between, read_metrics

SGLANG = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} %(running)d.0
sglang:num_queue_reqs{model_name="m"} 3.0
sglang:num_grammar_queue_reqs{model_name="m"} 2.0
sglang:num_running_reqs_total_imagined{model_name="m"} 99
sglang:inter_token_latency_seconds_bucket{le="0.002",model_name="m"} 4.0
sglang:inter_token_latency_seconds_sum{model_name="m"} %(itl)g
sglang:inter_token_latency_seconds_count{model_name="m"} %(tokens)d.0
sglang:time_to_first_token_seconds_sum{model_name="m",is_streaming="True"} 1.5
sglang:time_to_first_token_seconds_count{model_name="m",is_streaming="True"} 10.0
sglang:time_to_first_token_seconds_sum{model_name="m",is_streaming="False"} 0.5
sglang:time_to_first_token_seconds_count{model_name="m",is_streaming="False"} 10.0
sglang:scheduler_stage_seconds_total{category="get_next_batch_to_run",model_name="m"} %(poll)g
sglang:scheduler_stage_seconds_total{model_name="a\\"b,c",category="run_batch",forward_overlap="none"} 1e+02
process_cpu_seconds_total 12.5
"""
VLLM = """\
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:num_requests_running{engine="1",model_name="m"} 5.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:inter_token_latency_seconds_sum{engine="0"} 2.0
vllm:inter_token_latency_seconds_count{engine="0"} 100.0
vllm:time_to_first_token_seconds_count{engine="0"} 0.0
"""


def sglang(**values: float) -> bytes:
    return (SGLANG % ({"running": 5, "itl": 2.0, "tokens": 100, "poll": 10.0} | values)).encode()


def compared(before: bytes, after: bytes) -> EngineMetrics:
    first, second = read_metrics(before, 100.0), read_metrics(after, 105.0)
    assert first is not None
    assert second is not None
    return between("r", first, second)


def test_sglangs_metrics_say_what_happened_between_two_readings() -> None:
    seen = compared(sglang(), sglang(running=7, itl=6.0, tokens=300, poll=11.0))
    assert (seen.replica, seen.at_s, seen.over_s) == ("r", 105.0, 5.0)
    assert (seen.running, seen.waiting, seen.grammar_queue) == (7, 3, 2)
    assert seen.itl_us == pytest.approx(20_000.0)
    assert (seen.first_token_ms, seen.compile_ms, seen.compiles) == (None, None, 0)
    assert seen.stages == {"get_next_batch_to_run": pytest.approx(0.2), "run_batch": 0.0}


def test_vllms_engines_are_added_up() -> None:
    later = VLLM.replace('_sum{engine="0"} 2.0', '_sum{engine="0"} 4.0').replace(" 100.0", " 200.0")
    seen = compared(VLLM.encode(), later.encode())
    assert (seen.running, seen.waiting, seen.grammar_queue) == (9, 1, 0)
    assert seen.itl_us == pytest.approx(20_000.0)
    assert seen.stages == {}


def test_a_grammar_compile_histogram_is_read_where_an_engine_fills_it() -> None:
    lines = 'sglang:grammar_compilation_time_seconds_{part}{{model_name="m"}} {value}\n'

    def text(total: float, count: int) -> bytes:
        return (lines.format(part="sum", value=total) + lines.format(part="count", value=count)).encode()

    seen = compared(text(1.0, 2), text(4.0, 4))
    assert (seen.compile_ms, seen.compiles) == (pytest.approx(1500.0), 2)


def test_counters_that_fell_were_started_anew() -> None:
    seen = compared(sglang(itl=100.0, tokens=9000), sglang(itl=0.5, tokens=50))
    assert seen.itl_us == pytest.approx(10_000.0)


@pytest.mark.parametrize(
    "text",
    [b"", b"<html>not found</html>", b"\xff\x00", b"python_gc_objects_total 3\n", b"sglang:num_running_reqs x\n"],
)
def test_what_is_no_engines_exposition_is_no_reading(text: bytes) -> None:
    assert read_metrics(text, 0.0) is None


def test_a_value_that_is_no_number_is_passed_over() -> None:
    reading = read_metrics(b"sglang:num_queue_reqs{} 3\nsglang:num_running_reqs{} much\n", 1.0)
    assert reading == Reading(1.0, {"waiting": 3.0}, {}, {})
