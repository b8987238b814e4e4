"""The shapes of the API's answers, for its OpenAPI document: what programs may rely on.

Descriptions alone: nothing is made or checked by them while the gateway runs; a test holds real answers against them.
Answers may have more fields than stand here.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Instant = str
"""ISO 8601, UTC."""


class Answer(BaseModel):
    """Of the API."""

    model_config = ConfigDict(extra="allow")


class ErrorDetail(Answer):
    """type: `invalid_request_error` or `server_error`. code: for programs. message: for people."""

    message: str
    type: str
    code: str


class Error(Answer):
    """What every refusal looks like."""

    error: ErrorDetail


class Index(Answer):
    """endpoints: what each does, by method and path."""

    name: Literal["steplane"]
    version: str
    endpoints: dict[str, str]


class Alive(Answer):
    """The process runs."""

    status: Literal["alive"]


class Ready(Answer):
    """reason: why it should get no requests. pools: whether each has a replica that takes some."""

    ready: bool
    reason: str | None
    pools: dict[str, bool]


class Whoami(Answer):
    """name: as the configuration has it, "" where nobody need say who he is."""

    name: str
    role: Literal["read", "operate"]


class ReplicaBreaker(Answer):
    """state: `closed`, `open` or `half_open`."""

    state: str


class StepSource(Answer):
    """Where the gateway knows a replica's steps from; see `steplane_feed_source`."""

    source: Literal["steps", "metrics", "itl", "none"]
    since_s: float
    engine: str
    version: str
    lag_s: float | None
    last_error: str | None


class Replica(Answer):
    """One engine. booked_us: hook time for each step that what runs there is expected to take."""

    name: str
    pool: str
    url: str
    engine: str
    available: bool
    draining: bool
    healthy: bool
    resting: bool
    warming: bool
    named_by: Literal["file", "discovered", "added"] | str
    in_flight: int
    structured: int
    booked_us: float
    step_budget_us: float | None
    state_age_s: float
    probe_ms: float | None
    last_error: str | None
    breaker: ReplicaBreaker
    source: StepSource | None


class Queue(Answer):
    """Who waits for room. oldest_s: how long the one that waits longest has waited."""

    waiting: int
    oldest_s: float
    size: int
    max_wait_s: float


class Pool(Answer):
    """Replicas of one role. available: at least one of them takes requests."""

    name: str
    available: bool
    quarantine: bool
    step_budget_us: float | None
    hard_limit_us: float | None
    compile_limit_ms: float | None
    in_flight: int
    queue: Queue
    replicas: list[Replica]


class Pools(Answer):
    """All pools."""

    pools: list[Pool]


class Replicas(Answer):
    """All replicas."""

    replicas: list[Replica]


class Changed(Answer):
    """What was done to a replica, and how it is now."""

    what: Literal["added", "removed", "draining", "undrained", "ejected"]
    name: str
    pool: str
    url: str
    draining: bool
    in_flight: int


class Record(Answer):
    """A breaker. why: in a sentence. advice: what the sender could do. trip: the figures that opened it."""

    kind: Literal["signature", "tenant"]
    key: str
    state: Literal["closed", "open", "half_open", "pinned"]
    since: Instant | None
    until: Instant | None
    cause: str | None
    why: str
    advice: str | None
    author: str
    reason: str
    trips: int
    probes: int
    good_probes: int
    next_probe: Instant | None
    trip: dict[str, Any] | None


class Quarantine(Answer):
    """What is barred, newest first."""

    now: Instant
    quarantine_pool: str | None
    total: int
    by_state: dict[str, int]
    quarantined: list[Record]


class Predicted(Answer):
    """What was expected of a signature's newest request."""

    step_us: float
    compile_ms: float


class Cost(Answer):
    """What was observed of a signature. confidence: how far that is believed against the prediction, 0 to 1."""

    signature: str
    steps: float
    mean_us: float
    p95_us: float
    max_us: float
    by_kind: dict[str, float]
    compiles: float
    compile_mean_ms: float
    compile_max_ms: float
    confidence: float
    last_seen: Instant
    predicted: Predicted | None
    quarantine: str | None


class Costs(Answer):
    """The dearest, dearest first. signatures: how many there are."""

    costs: list[Cost]
    signatures: int


class Running(Answer):
    """A request that runs."""

    request_id: str
    tenant: str
    pool: str
    replica: str
    runs_s: float


class AuditEntry(Answer):
    """Who did what to a breaker."""

    at: Instant
    kind: str
    key: str
    event: str
    after: str
    author: str
    why: str


class Audit(Answer):
    """Newest first."""

    now: Instant
    total: int
    entries: list[AuditEntry]


class Quarantined(Answer):
    """All that is known of one signature or tenant."""

    now: Instant
    record: Record
    observed: Cost | None
    running: list[Running]
    audit: list[AuditEntry]


class Store(Answer):
    """Where breakers and costs are shared."""

    kind: str
    connected: bool
    since_s: float


class Barred(Answer):
    """What came of a change by hand."""

    now: Instant
    record: Record
    store: Store


class Naming(Answer):
    """A time at which a replica named a signature. stack: of the step thread, where its watchdog took one."""

    at: Instant
    stack: Any


class Namings(Answer):
    """Newest first."""

    steps: list[Naming]


class State(Answer):
    """The store, and how much is kept in this process."""

    store: Store
    kept: dict[str, float]


class TenantLimit(Answer):
    """A rate, what may be saved up of it, and what is left."""

    per_s: float
    burst: float
    left: float


class Tenant(Answer):
    """named: the configuration names it. keys: how many it has."""

    tenant: str
    named: bool
    keys: int
    priority: int
    pools: list[str] | None
    limits: dict[str, TenantLimit]


class Tenants(Answer):
    """All named tenants, and the others that were seen lately and are limited."""

    require_key: bool
    tenants: list[Tenant]


class NewKey(Answer):
    """The only time that the key is shown."""

    tenant: str
    key: str
    digest: str


class RevokedKey(Answer):
    """It is good for nothing any more."""

    tenant: str
    digest: str
    revoked: bool


class Problem(Answer):
    """What is wrong in a file, and where."""

    file: str
    line: int | None
    column: int | None
    key: str
    said: str


class Change(Answer):
    """A difference between two configurations."""

    key: str
    before: str | None
    after: str | None
    needs_restart: bool


class Reload(Answer):
    """What came of a reload."""

    outcome: Literal["applied", "unchanged", "checked", "refused", "failed"]
    trigger: str
    at: Instant
    took_ms: float
    error: str | None
    problems: list[Problem]
    warnings: list[Problem]
    changes: list[Change]
    needs_restart: list[str]


class Configuration(Answer):
    """Where the configuration came from.

    last_failed: the last reload that failed, whatever came after it. config: all of it, without secrets, where that was
    asked for.
    """

    source: str | None
    files: list[str]
    loaded_at: Instant | None
    last_error: str | None
    last_reload: Reload | None
    last_failed: Reload | None
    reloads: dict[str, int]
    config: dict[str, Any] | None = None


class Draining(Answer):
    """It ends as soon as what runs is finished."""

    draining: bool


class Explanation(Answer):
    """What would be decided, and why. refusal: why it can't be routed at all. rejection: why nobody takes it."""

    pool: str | None
    route: str | None
    refusal: dict[str, Any] | None
    rejection: dict[str, Any] | None
    signature: str
    cost: dict[str, Any]
    predicted: dict[str, Any]
    observed: dict[str, Any] | None
    features: dict[str, Any]
    why: str
    rules: list[dict[str, Any]]


class Overview(Answer):
    """All that the dashboard shows, by section."""

    now: float


class Worker(Answer):
    """One process that serves clients."""

    slot: int
    pid: int


class Workers(Answer):
    """All processes that serve clients. generation: how often all were renewed."""

    generation: int
    restarts: int
    draining: bool
    workers: list[Worker]


class Renewed(Answer):
    """New workers have the clients."""

    generation: int
    workers: int
