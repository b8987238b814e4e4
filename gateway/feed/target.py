"""A replica as the senses see it: where it is, whether it has a step feed, and what is judged there."""

from dataclasses import dataclass
from urllib.parse import urlsplit

FEED_PORT_OFFSET = 1000
"""An engine's step feed listens on its port plus this unless it is told otherwise (docs/replica.md)."""
_WITH_PLUGIN = frozenset({"sglang", "vllm"})
# Of the smallest budget: so much of a step deserves a line of its own.
_WORTH_A_LINE = 0.25


@dataclass(frozen=True, slots=True)
class Target:
    """One replica to be sensed.

    name, url:        as in the configuration; `url` without a trailing slash.
    engine:           `sglang`, `vllm` or `other`.
    feed:             `auto`: beside the engine, if it is there; `off`; or the feed's own URL.
    token:            bearer token that the feed wants; "": none.
    budget_us:        the smallest hook time of a step by which anything that runs there is judged; None: nothing is.
    compile_limit_ms: the pool's limit for compiling a grammar; None: any.
    """

    name: str
    url: str
    engine: str = "sglang"
    feed: str = "auto"
    token: str = ""
    budget_us: float | None = None
    compile_limit_ms: float | None = None

    @property
    def feed_url(self) -> str | None:
        """Where the step feed would be; None: nowhere."""
        if self.feed == "off":
            return None
        if self.feed != "auto":
            return self.feed.rstrip("/")
        parts = urlsplit(self.url)
        port = (parts.port or (443 if parts.scheme == "https" else 80)) + FEED_PORT_OFFSET
        if self.engine not in _WITH_PLUGIN or parts.hostname is None or port > 65535:
            return None
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"http://{host}:{port}"

    @property
    def headers(self) -> dict[str, str]:
        """What its step feed wants to be shown."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def least_own_us(self) -> float | None:
        """Steps in which no request took as much need no line of their own; None: no step does."""
        return None if self.budget_us is None else self.budget_us * _WORTH_A_LINE
