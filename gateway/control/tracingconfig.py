"""The configuration of tracing: where spans are sent, and of how many requests."""

from importlib.util import find_spec
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from gateway.control.logsconfig import Share
from gateway.control.part import Part, Seconds
from gateway.control.validation import custom_error

_PATH = "/v1/traces"
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.json.http")


class TracingConfig(Part):
    """Spans for a collector that takes OTLP over HTTP.

    endpoint:  its URL, such as `http://collector:4318`; without a path `/v1/traces` is meant.
    sample:    share of the requests that are traced where the client does not say so: its `traceparent` decides.
    headers:   what the collector wants to be shown, such as a key.
    service:   what the gateway is called in the traces.
    timeout_s: how long the collector may take.
    """

    endpoint: str
    sample: Share = 1.0
    headers: dict[str, str] = Field(default_factory=dict)
    service: Annotated[str, Field(min_length=1)] = "steplane"
    timeout_s: Seconds = 10

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, value: str) -> str:
        scheme, separator, rest = value.partition("://")
        if scheme not in ("http", "https") or not separator or not rest.partition("/")[0] or not value.isprintable():
            raise custom_error("the URL of a collector", "http://collector:4318")
        return value

    @model_validator(mode="after")
    def _can_be_sent(self) -> "TracingConfig":
        if not _is_installed():
            raise custom_error("OpenTelemetry's packages for `tracing`", "pip install 'steplane[otel]'")
        return self

    @property
    def url(self) -> str:
        """Where spans are sent."""
        _, _, rest = self.endpoint.partition("://")
        _, _, path = rest.partition("/")
        return self.endpoint if path else self.endpoint.rstrip("/") + _PATH


def _is_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:  # not even what they are in
        return False
