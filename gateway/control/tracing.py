"""How spans leave the gateway: by OpenTelemetry's batch processor, from a thread of its own.

Knows no request. Imported only where `tracing` is configured, since the SDK costs memory and a tenth of a second. Spans
are made as records rather than by the SDK's tracer: their ids were told to engines before they ended. Sent as JSON,
which every collector takes: the classes of the binary form are also in xds-protos, in other versions, and can't stand
beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode
from opentelemetry.util.types import AttributeValue

from gateway import __version__
from gateway.control.tracingconfig import TracingConfig

_SCOPE = InstrumentationScope("steplane", __version__)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_END_WITHIN_MS = 3000

Attributes = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Times are of the time of day, in nanoseconds.

    kind:      `server`, `client` or `internal`.
    parent_id: 0 where it has none. is_remote: the parent is somebody else's.
    failure:   what went wrong; None where nothing did.
    """

    name: str
    kind: str
    trace_id: int
    span_id: int
    parent_id: int
    began_ns: int
    ended_ns: int
    attributes: Attributes = field(default_factory=dict)
    is_remote: bool = False
    failure: str | None = None
    state: bytes = b""


class SpanSink:
    """Takes spans; sends them by and by. Where the collector is slow or away, the newest are left out."""

    def __init__(self, config: TracingConfig, instance: str, exporter: SpanExporter | None = None) -> None:
        """`instance`: what tells this process from others. `exporter`: in the place of the configured one."""
        self._resource = Resource.create(
            {"service.name": config.service, "service.version": __version__, "service.instance.id": instance}
        )
        self._processor = BatchSpanProcessor(
            exporter or OTLPSpanExporter(config.url, headers=config.headers, timeout=config.timeout_s)
        )

    def add(self, span: Span) -> None:
        """Have a span sent; returns at once."""
        state = TraceState.from_header([span.state.decode("latin-1")]) if span.state else None
        context = SpanContext(span.trace_id, span.span_id, False, _SAMPLED, state)
        parent = SpanContext(span.trace_id, span.parent_id, span.is_remote, _SAMPLED) if span.parent_id else None
        status = Status() if span.failure is None else Status(StatusCode.ERROR, span.failure)
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=context,
                parent=parent,
                resource=self._resource,
                attributes=span.attributes,
                kind=_KINDS[span.kind],
                instrumentation_scope=_SCOPE,
                status=status,
                start_time=span.began_ns,
                end_time=max(span.began_ns, span.ended_ns),
            )
        )

    def close(self) -> None:
        """Send what is left, for three seconds at most. Blocks so long: not for the event loop."""
        self._processor.force_flush(_END_WITHIN_MS)
        self._processor.shutdown()  # type: ignore[no-untyped-call]


_KINDS = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}
