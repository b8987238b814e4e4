"""What the admin port can be asked: one table, of which the index and the OpenAPI document are made.

Owns no handler: those are in the file of their noun, and a test holds the table against the routes that there are.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from gateway.control.api import answers
from gateway.control.api.quarantine import AddBody, ByHand
from gateway.control.config import ReplicaConfig

TEXT = "text/plain"
EVENTS = "text/event-stream"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One of the query. `schema`: JSON Schema. `example`: as the index shows it, None where it does not."""

    name: str
    said: str
    schema: dict[str, Any]
    example: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """A method on a path.

    answer:  what a good one looks like: a model, or a media type. status: of a good one.
    body:    what is sent with it: a model, or JSON of any kind (`dict`); None: nothing. optional: it may be left out.
    errors:  statuses of what can go wrong, beside 401 and 403 of who may not.
    workers: there only where several workers serve, and a supervisor answers.
    """

    method: str
    path: str
    said: str
    answer: type[BaseModel] | str
    status: int = 200
    parameters: tuple[Parameter, ...] = ()
    body: type[BaseModel] | type[dict[str, Any]] | None = None
    optional: bool = False
    errors: tuple[int, ...] = ()
    workers: bool = False

    @property
    def tag(self) -> str:
        """The noun that it is about."""
        parts = self.path.split("/")
        return parts[3] if self.path.startswith("/api/v1/") else "gateway"

    @property
    def shown(self) -> str:
        """Method, path and query for people."""
        query = "&".join([f"{each.name}={each.example}" for each in self.parameters if each.example is not None])
        return f"{self.method} {self.path}{'?' if query else ''}{query}"


def index(*, workers: bool | None = None) -> dict[str, str]:
    """All operations for people; `workers`: only those that a supervisor has, or only the others."""
    return {each.shown: each.said for each in OPERATIONS if workers is None or each.workers is workers}


_TEXT = {"type": "string"}
_FLAG = {"type": "boolean", "default": False}
_REPLICA_OF_POOL = "/api/v1/pools/{pool}/replicas/{replica}"


def _count(default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": 1000, "default": default}


_LIMIT = Parameter("limit", "how many at most", _count(100))
_KIND = Parameter(
    "kind", "what the key is, where it could be either", {"type": "string", "enum": ["signature", "tenant"]}
)

OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/", "this list; for a browser the dashboard", answers.Index),
    Operation("GET", "/healthz", "200 while the process runs", answers.Alive),
    Operation(
        "GET", "/readyz", "200 while this gateway should get requests, else 503; says why", answers.Ready, errors=(503,)
    ),
    Operation("GET", "/metrics", "Prometheus metrics; with exemplars for who accepts OpenMetrics", TEXT),
    Operation("GET", "/api/v1/openapi.json", "this API in OpenAPI 3.1", JSON),
    Operation("GET", "/api/v1/whoami", "as whom the admin port knows you, and what you may do", answers.Whoami),
    Operation("GET", "/api/v1/pools", "pools with their replicas, load, queue and policy", answers.Pools),
    Operation(
        "GET",
        "/api/v1/replicas",
        "replicas with their health, breaker, source of step times and booked step budget",
        answers.Replicas,
    ),
    Operation(
        "POST",
        "/api/v1/pools/{pool}/replicas",
        "add a replica {url, name}",
        answers.Changed,
        status=201,
        body=ReplicaConfig,
        errors=(400, 404, 409),
    ),
    Operation(
        "DELETE", _REPLICA_OF_POOL, "take it out; what runs there is finished", answers.Changed, errors=(404, 409)
    ),
    *(
        Operation("POST", f"{base}/{verb}", said, answers.Changed, body=ByHand, optional=True, errors=(400, 404))
        for base in (_REPLICA_OF_POOL, "/api/v1/replicas/{replica}")
        for verb, said in (("drain", "send nothing new there"), ("undrain", "send requests there again"))
    ),
    Operation(
        "POST",
        "/api/v1/replicas/{replica}/eject",
        "take it for sick {author, reason}: it comes back by trials",
        answers.Changed,
        body=ByHand,
        errors=(400, 404, 409),
    ),
    Operation("GET", "/api/v1/quarantine", "what is quarantined, and why", answers.Quarantine, parameters=(_LIMIT,)),
    Operation(
        "GET",
        "/api/v1/quarantine/{key}",
        "one signature or tenant: breaker, observed cost, running requests, audit log",
        answers.Quarantined,
        parameters=(_KIND,),
        errors=(404,),
    ),
    Operation(
        "POST",
        "/api/v1/quarantine",
        "quarantine {signature | tenant, author, reason, wait_s | pin}",
        answers.Barred,
        status=201,
        body=AddBody,
        errors=(400, 409),
    ),
    Operation(
        "POST",
        "/api/v1/quarantine/{key}/release",
        "let go {author, reason}",
        answers.Barred,
        parameters=(_KIND,),
        body=ByHand,
        errors=(400, 404, 409),
    ),
    Operation(
        "GET",
        "/api/v1/quarantine/{key}/steps",
        "when replicas last named a signature, with stacks",
        answers.Namings,
    ),
    Operation(
        "GET",
        "/api/v1/audit",
        "who did what to which breaker, newest first",
        answers.Audit,
        parameters=(_LIMIT, Parameter("key", "only of this signature or tenant", _TEXT)),
    ),
    Operation(
        "GET",
        "/api/v1/costs",
        "the dearest cost signatures: observed beside predicted",
        answers.Costs,
        parameters=(Parameter("top", "how many at most", _count(20), "20"),),
        errors=(400,),
    ),
    Operation("GET", "/api/v1/costs/{signature}", "what was observed of one signature", answers.Cost, errors=(404,)),
    Operation("GET", "/api/v1/state", "where breakers and costs are shared, and whether that works", answers.State),
    Operation("GET", "/api/v1/tenants", "tenants with their rights, limits and what they have left", answers.Tenants),
    Operation(
        "POST",
        "/api/v1/tenants/{tenant}/keys",
        "make a key that all gateways know {author, reason}",
        answers.NewKey,
        status=201,
        body=ByHand,
        errors=(400, 404, 409),
    ),
    Operation(
        "POST",
        "/api/v1/tenants/{tenant}/keys/{digest}/revoke",
        "take it back {author, reason}",
        answers.RevokedKey,
        body=ByHand,
        errors=(400, 404, 409),
    ),
    Operation(
        "GET",
        "/api/v1/config",
        "where the configuration came from, since when it is in force, the last reload",
        answers.Configuration,
        parameters=(Parameter("full", "with all that it says, without secrets", _FLAG, "false"),),
    ),
    Operation(
        "POST",
        "/api/v1/reload",
        "read the configuration again and apply it, or only check it",
        answers.Reload,
        parameters=(Parameter("check", "only say what would come of it", _FLAG, "false"),),
        errors=(409, 422, 500),
    ),
    Operation("POST", "/api/v1/drain", "end in good order, as SIGTERM does", answers.Draining, status=202),
    Operation("GET", "/api/v1/overview", "all that the dashboard shows", answers.Overview),
    Operation(
        "GET",
        "/api/v1/events",
        "the same live, as server-sent events: a snapshot, then each second what has changed",
        EVENTS,
    ),
    Operation(
        "GET",
        "/api/v1/decisions",
        "a live tail of decisions, as server-sent events",
        EVENTS,
        parameters=(
            Parameter("pool", "only of this pool", _TEXT, ""),
            Parameter("rule", "only of this rule", _TEXT, ""),
            Parameter("tenant", "only of this tenant", _TEXT, ""),
            Parameter("min_us", "only of at least this step cost, in microseconds", {"type": "number"}, ""),
        ),
        errors=(400,),
    ),
    Operation(
        "POST",
        "/api/v1/explain",
        "what would be decided for the request body, and why",
        answers.Explanation,
        parameters=(
            Parameter(
                "path", "that it is sent to", _TEXT | {"default": "/v1/chat/completions"}, "/v1/chat/completions"
            ),
            Parameter("method", "by which it is sent", _TEXT | {"default": "POST"}),
            Parameter("tenant", "whose it is", _TEXT),
            Parameter("header", "`name: value`, as often as there are headers", {"type": "array", "items": _TEXT}),
        ),
        body=dict,
        errors=(400,),
    ),
    Operation("GET", "/api/v1/workers", "the worker processes", answers.Workers, workers=True),
    Operation(
        "POST",
        "/api/v1/restart",
        "new workers, of the code and configuration that are there now, in place of the old ones",
        answers.Renewed,
        errors=(409,),
        workers=True,
    ),
)
