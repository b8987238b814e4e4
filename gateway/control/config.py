"""The configuration: what the YAML may say, with every default, and the way from a file to a checked `Config`.

Owns the shape of each part. What one part demands of another is checks.py; turning it into routing objects is
assembly.py. All durations end in `_s` (seconds), all sizes in `_bytes`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from gateway.control.adminconfig import AdminConfig, check_admin
from gateway.control.balanceconfig import BalanceConfig, CapabilitiesConfig, LoadsConfig, Weight, check_balance
from gateway.control.breakerconfig import (
    DEFAULT_QUARANTINE,
    AdmissionConfig,
    BreakerConfig,
    EjectionConfig,
    PoolBreakerConfig,
)
from gateway.control.checks import cross_check
from gateway.control.classifier import check_classifier
from gateway.control.discoverconfig import DiscoverConfig
from gateway.control.document import Document, Location, parse_document
from gateway.control.eppconfig import EppConfig, check_epp
from gateway.control.forwardingconfig import ForwardingConfig
from gateway.control.includes import join_includes, read_with_includes
from gateway.control.listenconfig import ListenConfig, ListenConfigs, check_listeners
from gateway.control.logsconfig import LogsConfig
from gateway.control.modelsconfig import ModelsConfig
from gateway.control.network import Address
from gateway.control.part import Count, Limit, Micros, Millis, Name, Part, ReplicaUrl, Seconds, Size
from gateway.control.problem import ConfigError, Problem, in_order
from gateway.control.recordconfig import RecordConfig
from gateway.control.reloadconfig import ReloadConfig
from gateway.control.retryconfig import DeadlinesConfig, HedgeConfig, RetryConfig
from gateway.control.ruleconfig import RuleConfig
from gateway.control.stateconfig import StateConfig
from gateway.control.tenantsconfig import ApiKey, TenantsConfig, check_tenants
from gateway.control.tracingconfig import TracingConfig
from gateway.control.upstreamconfig import UpstreamConfig, check_upstreams
from gateway.control.validation import PATH_PATTERN, custom_error, to_problem, validate
from gateway.control.warmupconfig import WarmUpConfig, check_warm_ups
from gateway.control.workersconfig import checked_workers
from gateway.routing.balance.balancer import Plan

_HARD_OVER_BUDGET = 20

GrammarBackend = Literal["xgrammar", "llguidance", "outlines"]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)*$")]


class LimitsConfig(Part):
    """What clients may do. Of all but the first two, 0 is no limit.

    max_header_bytes:            a larger header gets a 431.
    max_body_bytes:              a larger body gets a 413.
    max_connections:             of all clients; one more gets a 503. Where 0, as many as open files allow.
    max_connections_per_address: of one IPv4 address, or one IPv6 network of 64 bits; one more gets a 429.
    max_requests_per_connection: then the connection is closed.
    body_min_bytes_per_s:        a request body that comes more slowly for `timeouts.rate_grace_s` gets a 408.
    write_min_bytes_per_s:       a client that takes a reply more slowly, for as long, is cut off. Counts only while a
                                 quarter of a MiB is waiting for it: a stream that has little to say is not slow.
    """

    max_header_bytes: Size = 64 * 1024
    max_body_bytes: Size = 64 * 1024 * 1024
    max_connections: Limit = 0
    max_connections_per_address: Limit = 0
    max_requests_per_connection: Limit = 0
    body_min_bytes_per_s: Limit = 0
    write_min_bytes_per_s: Limit = 0


class TimeoutsConfig(Part):
    """How long the data plane waits for each thing, in seconds.

    header_s:        the whole request header, from its first byte.
    body_s:          between two reads of a request body.
    rate_grace_s:    how long a client may be slower than the least rates of `limits`.
    connect_s:       a connection to a replica.
    first_byte_s:    the first byte of a replica's reply; covers queueing and prefill.
    stream_idle_s:   between two bytes of a reply.
    keepalive_s:     a client's connection without a request.
    upstream_idle_s: an unused connection to a replica is closed then: stay below the engine's limit (uvicorn: 5 s).
    drain_delay_s:   at a shutdown, from the first word of it (/readyz, `connection: close`) to the end of accepting.
    drain_s:         running requests at a shutdown.
    hand_over_s:     running requests of old workers when new ones have taken over.
    """

    header_s: Seconds = 10
    body_s: Seconds = 60
    rate_grace_s: Seconds = 20
    connect_s: Seconds = 2
    first_byte_s: Seconds = 600
    stream_idle_s: Seconds = 300
    keepalive_s: Seconds = 75
    upstream_idle_s: Seconds = 4
    drain_delay_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    drain_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30
    hand_over_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 600


class HealthConfig(Part):
    """The active check of each replica of a pool: any 200 on `path` means up."""

    path: Annotated[str, StringConstraints(pattern=PATH_PATTERN)] = "/health"
    interval_s: Seconds = 1
    timeout_s: Seconds = 5
    eject_after: Count = 3
    readmit_after: Count = 1


class ReplicaConfig(Part):
    """One replica; in the YAML a plain URL is enough.

    feed:   the URL of its step feed, where that is not the usual.
    weight: its share of the load beside others of its pool. zone: where it stands, for `balance: zone_aware`.
    """

    url: ReplicaUrl
    name: Name | None = None
    feed: ReplicaUrl | None = None
    weight: Weight = 1
    zone: str = ""

    @property
    def label(self) -> str:
        """The name, or `host:port` where none is given."""
        return self.name or self.url.authority

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _has_a_label(self) -> "ReplicaConfig":
        if self.url.path and self.name is None:
            raise custom_error("a name for a replica at a Unix socket", f"{{url: {self.url}, name: engine-1}}")
        return self


class RejectConfig(Part):
    """Answer 503 with this `Retry-After`."""

    retry_after_s: Annotated[int, Field(ge=1, le=3600)] = 1


class UnavailableConfig(Part):
    """What happens while no replica is available: `reject`, `{reject: {retry_after_s: N}}` or `{spill: POOL}`."""

    reject: RejectConfig | None = None
    spill: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        if value == "reject":
            return {"reject": {}}
        if isinstance(value, UnavailableConfig) or (isinstance(value, dict) and len(value) == 1):
            return value
        raise custom_error("reject or {spill: POOL}")


class FullConfig(Part):
    """What happens to what no replica has room for: `wait`, or `{spill: POOL}` while that pool has some to spare."""

    spill: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        if value == "wait":
            return {}
        if isinstance(value, FullConfig) or (isinstance(value, dict) and len(value) == 1):
            return value
        raise custom_error("wait or {spill: POOL}")


class PoolConfig(Part):
    """Replicas that serve one role.

    model:            what they must serve, as their `/v1/models` names it; one that serves another takes no requests.
    step_budget_us:   hook time that one step may take.
    hard_limit_us:    hook time of one request in one step that trips at once; 20 times the budget where not given.
    compile_limit_ms: of one grammar.
    feed:             `auto`: the replicas' step feeds are looked for at the usual place; `off`: they are not.
    feed_token:       what they want to be shown, if they want anything.
    api_key:          what the engines want to be shown as `Authorization: Bearer …`, instead of a client's own key.
    deadline_s:       how long a request may take, to the last byte of its answer; by default as long as it takes.
    balance:          which replica takes a request. loads: how its engines are asked for their load, where that counts.
    grammar_backend, grammar_backend_version: what its engines run; by default what `hookcost` says.
    capabilities:     what its engines can take.
    canonicalize_schema: JSON schemas are sent on in one spelling, so that equal ones share the engine's cache.
    warm_up:          the grammars used most are compiled by a replica that comes up before it takes requests.
    upstream:         the connections to its replicas.
    """

    engine: Literal["sglang", "vllm", "other"] = "sglang"
    model: str | None = None
    replicas: list[ReplicaConfig] = Field(default_factory=list)
    discover: DiscoverConfig | None = None
    step_budget_us: Micros | None = None
    hard_limit_us: Micros | None = None
    compile_limit_ms: Millis | None = 5000
    when_unavailable: UnavailableConfig = UnavailableConfig(reject=RejectConfig())
    when_full: FullConfig = FullConfig(spill=None)
    health: HealthConfig = HealthConfig()
    breaker: PoolBreakerConfig = PoolBreakerConfig()
    admission: AdmissionConfig = AdmissionConfig()
    ejection: EjectionConfig = EjectionConfig()
    feed: Literal["auto", "off"] = "auto"
    feed_token: str = ""
    api_key: ApiKey = ""
    retry: RetryConfig = RetryConfig()
    hedge: HedgeConfig | None = None
    deadline_s: Seconds | None = None
    balance: BalanceConfig = BalanceConfig()
    loads: LoadsConfig = LoadsConfig()
    grammar_backend: GrammarBackend | None = None
    grammar_backend_version: Version | None = None
    capabilities: CapabilitiesConfig = CapabilitiesConfig()
    canonicalize_schema: bool = False
    warm_up: WarmUpConfig | None = None
    upstream: UpstreamConfig = UpstreamConfig()

    _zone: str = PrivateAttr("")

    @property
    def backend(self) -> tuple[str, str | None] | None:
        """The grammar backend of its engines and the version, where the pool says so itself."""
        return None if self.grammar_backend is None else (self.grammar_backend, self.grammar_backend_version)

    @property
    def plan(self) -> Plan | None:
        """How it balances; None: the least loaded replica takes it."""
        return self.balance.plan(self._zone, weighted=len({replica.weight for replica in self.replicas}) > 1)

    @property
    def hard_limit(self) -> float | None:
        """`hard_limit_us` or what stands in for it."""
        if self.hard_limit_us is not None or self.step_budget_us is None:
            return self.hard_limit_us
        return self.step_budget_us * _HARD_OVER_BUDGET


class HookCostConfig(Part):
    """How requests are priced.

    grammar_backend:         whose prices count: what the engines run (SGLang's `--grammar-backend`).
    grammar_backend_version: where it is older than the price list's.
    cost_model:              a price list of one's own, relative to this file; else the one that comes with Steplane.
    refuse:                  what is refused instead of routed; gateway/hookcost/policy.py lists the entries.
    """

    grammar_backend: GrammarBackend = "xgrammar"
    grammar_backend_version: Version | None = None
    cost_model: str | None = None
    refuse: dict[str, Any] = Field(default_factory=dict)


class Config(Part):
    """A whole configuration, checked. `warnings` are findings that do not keep it from being used.

    workers:       processes that serve clients, or `auto` for one on each core; above 1 with a supervisor over them.
    worker_silent_s: one of them whose event loop hangs for so long is ended, and replaced.
    include:       files that are merged into this one, by name or pattern, relative to it; includes.py says how.
    control_paths: what is done with requests that would steer an engine (`/abort_request`, `/flush_cache`, …).
    zone:          where this gateway stands, for `balance: zone_aware`.
    logs:          what is written to stderr. tracing: where spans of requests are sent; by default nowhere.
    """

    include: list[str] = Field(default_factory=list)
    listen: ListenConfigs = Field(default_factory=lambda: [ListenConfig(address=Address("127.0.0.1", 8080))])
    forwarding: ForwardingConfig = ForwardingConfig()
    epp: EppConfig = EppConfig()
    admin: AdminConfig = AdminConfig()
    reload: ReloadConfig = ReloadConfig()
    record_decisions: RecordConfig | None = None
    workers: Annotated[int | Literal["auto"], BeforeValidator(checked_workers)] = 1
    # They say once a second that they are alive, and a busy machine may delay that.
    worker_silent_s: Annotated[float, Field(ge=5, allow_inf_nan=False)] = 30
    default_pool: str
    limits: LimitsConfig = LimitsConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    hookcost: HookCostConfig = HookCostConfig()
    breaker: BreakerConfig = BreakerConfig()
    tenants: TenantsConfig = TenantsConfig()
    models: ModelsConfig = ModelsConfig()
    control_paths: Literal["refuse", "pass"] = "refuse"
    deadlines: DeadlinesConfig = DeadlinesConfig()
    zone: str = ""
    state: StateConfig = StateConfig()
    logs: LogsConfig = LogsConfig()
    tracing: TracingConfig | None = None
    pools: Annotated[dict[Name, PoolConfig], Field(min_length=1)]
    rules: list[RuleConfig] = Field(default_factory=list)

    _warnings: tuple[Problem, ...] = PrivateAttr(())
    _folder: Path = PrivateAttr(Path())
    _source: Path | None = PrivateAttr(None)
    _files: tuple[str, ...] = PrivateAttr(())
    _origins: Mapping[Location, str] = PrivateAttr(default_factory=dict)

    @property
    def quarantine_pool(self) -> str | None:
        """The pool for what is quarantined, if there is one."""
        named = self.breaker.quarantine_pool
        if named is None and DEFAULT_QUARANTINE in self.pools:
            return DEFAULT_QUARANTINE
        return named

    @property
    def folder(self) -> Path:
        """Where files that the configuration names are looked for."""
        return self._folder

    @property
    def source(self) -> Path | None:
        """The file that it was read from, and can be read from again; None where it was given as text."""
        return self._source

    @property
    def files(self) -> tuple[str, ...]:
        """What it was read from: the file that was asked for, what that includes, and secrets from files."""
        return self._files

    @property
    def origins(self) -> Mapping[Location, str]:
        """Values that were not written in the configuration, and what they stand for: they may be secret."""
        return self._origins

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Findings that deserve a look: rules that never match, pools that nothing uses."""
        return self._warnings


def load_config(path: Path | str, variables: Mapping[str, str] = os.environ) -> Config:
    """Read and check a configuration file and what it includes. Raises ConfigError with everything that is wrong.

    variables: what `${NAME}` stands for in it.
    """
    return read_config(Path(path), variables)[1]


def read_config(path: Path, variables: Mapping[str, str] = os.environ) -> tuple[Document, Config]:
    """The same with the plain data that the configuration was made of. Raises ConfigError."""
    document = read_with_includes(path, variables)
    return document, check_config(document, path.parent, path)


def parse_config(text: str, file: str = "<text>", variables: Mapping[str, str] = os.environ) -> Config:
    """Check a configuration given as text. Raises ConfigError; `file` is what its problems name."""
    return check_config(join_includes(parse_document(file, text, variables), Path(file), variables), Path())


def check_config(document: Document, folder: Path, source: Path | None = None) -> Config:
    """The configuration that a document is. Raises ConfigError.

    folder: where files that it names are looked for. source: the file that it was read from, to be read again.
    """
    try:
        config = validate(Config, document)
    except ValidationError as error:
        problems = [to_problem(Config, document, details) for details in error.errors(include_url=False)]
        raise ConfigError(in_order(problems)) from None
    errors, warnings = cross_check(config, document)
    warnings += check_admin(config.admin.listen, config.admin.auth, document)
    warnings += check_warm_ups(config.pools, document)
    errors += check_listeners(config.listen, folder, document)
    errors += check_epp(config.epp, folder, document)
    errors += check_classifier(config, folder, document)
    errors += check_balance(config.pools, config.zone, document)
    errors += check_upstreams(config.pools, folder, document)
    errors += check_tenants(config.tenants, folder, config.pools, document)
    if errors:
        raise ConfigError(errors)
    for pool in config.pools.values():
        pool._zone = config.zone
    config._warnings = tuple(warnings)
    config._folder = folder
    config._source = source
    config._files = document.files
    config._origins = document.origins
    return config
