"""Requests as traces: W3C context in and out, spans at a collector, and nothing of it where it is not wanted."""

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from opentelemetry.semconv import attributes
from opentelemetry.semconv._incubating import attributes as incubating

from tests.integration.gateway.harness import CHAT, PLAIN, Engine, hang_up, house, stream
from tests.integration.watch.collector import Collector

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
GIVEN = f"00-{TRACE}-{PARENT}-01"
SECRET = "a prompt that nobody may read"
BODY = {**PLAIN[CHAT], "messages": [{"role": "user", "content": SECRET}], "max_tokens": 7}


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    collector = Collector()
    await collector.start()
    yield collector
    await collector.stop()


def header(message: object, name: bytes) -> list[bytes]:
    return [value for key, value in message.headers if key.lower() == name]  # type: ignore[attr-defined]


async def test_a_clients_trace_goes_on_in_the_gateway_and_in_the_engine(collector: Collector) -> None:
    engine = Engine("a", stream)
    tracing = {"endpoint": collector.url, "headers": {"x-api-key": "k"}, "service": "edge"}
    async with house({"interactive": [engine]}, config={"tracing": tracing}) as here:
        lines = (f"traceparent: {GIVEN}", "tracestate: vendor=1", "authorization: Bearer sk-hidden")
        answer = await here.ask(CHAT, {**BODY, "stream": True}, *lines)
        assert answer.status == 200

    root = await collector.named(f"POST {CHAT}")
    leg = await collector.named("chat m")
    spans = {span.name: span for span in collector.spans}
    assert {"parse", "decide", "first_byte", "stream"} <= set(spans)
    assert {span.trace for span in spans.values()} == {TRACE}
    assert root.parent == PARENT
    assert leg.parent == spans["parse"].parent == spans["decide"].parent == root.id
    assert spans["first_byte"].parent == spans["stream"].parent == leg.id
    assert header(engine.asked[0], b"traceparent") == [f"00-{TRACE}-{leg.id}-01".encode()]
    assert header(engine.asked[0], b"tracestate") == [b"vendor=1"]
    for span in spans.values():
        assert root.began_ns <= span.began_ns <= span.ended_ns
        assert SECRET not in str(span.sent)
        assert "sk-hidden" not in str(span.sent)
    assert collector.headers["x-api-key"] == "k"
    assert collector.resource["service.name"] == "edge"


async def test_spans_say_what_was_asked_and_decided(collector: Collector) -> None:
    config = {"tracing": {"endpoint": collector.url}}
    async with house({"interactive": [Engine("a")]}, config=config) as here:
        await here.ask(CHAT, BODY)

    found = (await collector.named(f"POST {CHAT}")).attributes
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.request.model"] == "m"
    assert found["gen_ai.request.max_tokens"] == 7
    assert found["http.response.status_code"] == 200
    assert found["steplane.pool"] == "interactive"
    assert found["steplane.outcome"] == "ok"
    assert found["steplane.signature"].startswith("s1-")
    leg = (await collector.named("chat m")).attributes
    assert leg["steplane.replica"] == "a"
    assert (leg["gen_ai.provider.name"], leg["server.address"]) == ("sglang", "127.0.0.1")
    assert leg["url.full"] == f"http://127.0.0.1:{leg['server.port']}{CHAT}"


def names_of_the_conventions() -> set[str]:
    """All names of attributes that OpenTelemetry's package of them knows."""
    found = set()
    for package in (attributes, incubating):
        for each in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{each.name}")
            found |= {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    return found


async def test_all_attributes_are_ours_or_those_of_the_conventions(collector: Collector) -> None:
    config = {"tracing": {"endpoint": collector.url}}
    options = {"interactive": {"retry": {"attempts": 2}}}
    engines = [Engine("a", hang_up), Engine("b", hang_up)]
    async with house({"interactive": engines}, options=options, config=config) as here:
        await here.ask(CHAT, {**BODY, "stream": True})
    async with house({"interactive": [Engine("a", stream)]}, config=config) as here:
        await here.ask(CHAT, {**BODY, "stream": True, "n": 2})

    found = {name for span in collector.spans for name in span.attributes}
    assert {name for name in found if not name.startswith("steplane.")} <= names_of_the_conventions()
    assert found >= {"error.type", "http.request.resend_count", "gen_ai.response.time_to_first_chunk", "http.route"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"type": "json_object"}, "json"),
        ({"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}, "json"),
        ({"type": "text"}, "text"),
    ],
)
async def test_what_kind_of_output_is_asked_for(collector: Collector, asked: dict[str, object], said: str) -> None:
    config = {"tracing": {"endpoint": collector.url}}
    async with house({"interactive": [Engine("a")], "grammar": [Engine("b")]}, config=config) as here:
        await here.ask(CHAT, {**BODY, "response_format": asked})

    assert (await collector.named(f"POST {CHAT}")).attributes["gen_ai.output.type"] == said


async def test_a_path_that_a_client_made_up_is_no_name_of_a_span(collector: Collector) -> None:
    config = {"tracing": {"endpoint": collector.url}}
    async with house({"interactive": [Engine("a")]}, config=config) as here:
        await here.ask("/v1/made/up/4711", BODY)

    (span,) = [span for span in collector.spans if not span.parent]
    assert span.name == "POST"
    assert span.attributes["url.path"] == "/v1/made/up/4711"
    assert "http.route" not in span.attributes


async def test_each_attempt_has_a_span_and_a_context_of_its_own(collector: Collector) -> None:
    engines = [Engine("a", hang_up), Engine("b", hang_up)]
    config = {"tracing": {"endpoint": collector.url}}
    options = {"interactive": {"retry": {"attempts": 2}}}
    async with house({"interactive": engines}, options=options, config=config) as here:
        await here.ask(CHAT, BODY)
        sent = [header(message, b"traceparent")[0].split(b"-") for message in here.asked]

    await collector.named(f"POST {CHAT}")
    legs = {span.id.encode() for span in collector.spans if span.name == "chat m"}
    assert {parts[2] for parts in sent} <= legs
    assert len({parts[1] for parts in sent}) == 1
    failed = [span for span in collector.spans if span.name == "chat m"]
    assert all(span.failed for span in failed)


@pytest.mark.parametrize(
    ("line", "sample", "sampled"),
    [
        (f"traceparent: {GIVEN[:-1]}0", 1.0, False),
        (f"traceparent: {GIVEN}", 0.0, True),
        ("x-other: 1", 0.0, False),
        ("x-other: 1", 1.0, True),
        (f"traceparent: 00-{'0' * 32}-{PARENT}-00", 1.0, True),
        (f"traceparent: 00-{TRACE.upper()}-{PARENT}-00", 1.0, True),
    ],
)
async def test_the_client_says_what_is_traced_else_the_share(
    collector: Collector, line: str, sample: float, sampled: bool
) -> None:
    engine = Engine("a")
    config = {"tracing": {"endpoint": collector.url, "sample": sample}}
    async with house({"interactive": [engine]}, config=config) as here:
        await here.ask(CHAT, BODY, line)

    (sent,) = header(engine.asked[0], b"traceparent")
    assert sent.endswith(b"-01" if sampled else b"-00")
    assert bool(collector.spans) is sampled


async def test_a_collector_that_is_away_costs_no_request() -> None:
    config = {"tracing": {"endpoint": "http://127.0.0.1:1", "timeout_s": 0.1}}
    async with house({"interactive": [Engine("a")]}, config=config) as here:
        assert [(await here.ask(CHAT, BODY)).status for _ in range(5)] == [200] * 5


async def test_without_tracing_the_clients_context_passes_untouched() -> None:
    engine = Engine("a")
    async with house({"interactive": [engine]}) as here:
        await here.ask(CHAT, BODY, f"traceparent: {GIVEN}")
        await here.ask(CHAT, BODY)

    assert [header(each, b"traceparent") for each in engine.asked] == [[GIVEN.encode()], []]


def test_who_does_not_trace_does_not_load_opentelemetry() -> None:
    said = "import gateway.app, sys; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, check=True, text=True)

    # Others' packages may find its API, which does nothing.
    assert "opentelemetry.sdk" not in found.stdout
    assert "opentelemetry.exporter" not in found.stdout
