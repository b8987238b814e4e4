"""A decision as it is recorded: what the rules looked at and what they said, as one line of JSON, and back.

Features, costs and names of our own configuration, and of the client's words only the path, the model and the tenant
that it was found to be. What rules ask of headers, of the query and of the past is not in it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from gateway.hookcost import Classification, HookCost
from gateway.hookcost.features import Api, Features, Grammar
from gateway.routing.request import RouteRequest
from gateway.routing.router import Decision

_LONGEST = 256
_PLAIN = asdict(Features())
_HEAVY = "recorded as heavy"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as rules see it, and where they sent it: `pool` is None where they refused it."""

    request: RouteRequest
    pool: str | None
    rule: str


def line_of(request: RouteRequest, classification: Classification, decision: Decision, at: float) -> bytes:
    """One line. `at`: time of day."""
    features = asdict(classification.features)
    cost = classification.cost
    chosen = decision.pool.name if decision.pool is not None else None
    document = {
        "at": round(at, 3),
        "method": request.method,
        "path": request.path[:_LONGEST],
        "tenant": request.tenant[:_LONGEST],
        # Where the rules sent it, whatever was up or quarantined then.
        "pool": decision.quarantined_from or decision.spilled_from or chosen,
        "rule": decision.rule,
        "signature": classification.signature,
        "grammar_key": classification.grammar_key,
        "features": {
            name: value[:_LONGEST] if isinstance(value, str) else value
            for name, value in features.items()
            if value != _PLAIN[name]
        },
        "cost": {
            "compile_ms": round(cost.compile_ms, 3),
            "step_us": round(cost.step_us, 3),
            "by_hook": {hook: round(us, 3) for hook, us in cost.by_hook.items()},
            "heavy": cost.heavy is not None,
        },
    }
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def recorded(line: bytes | str) -> Recorded:
    """A line as it was written. Raises ValueError."""
    document = orjson.loads(line)
    try:
        features = _features(document["features"])
        cost = document["cost"]
        hook_cost = HookCost(
            compile_ms=float(cost["compile_ms"]),
            step_us=float(cost["step_us"]),
            by_hook={str(hook): float(us) for hook, us in cost["by_hook"].items()},
            heavy=_HEAVY if cost["heavy"] else None,
        )
        classification = Classification(
            features, hook_cost, str(document["signature"]), str(document.get("grammar_key", ""))
        )
        request = RouteRequest(document["method"], document["path"], classification, document.get("tenant", ""))
        pool = document["pool"]
        return Recorded(request, None if pool is None else str(pool), str(document["rule"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no recorded decision: {error!r}") from None


def _features(document: Mapping[str, Any]) -> Features:
    values = dict(document)
    unknown = values.keys() - _PLAIN.keys()
    if unknown:
        raise ValueError(f"features that this version does not know: {', '.join(sorted(unknown))}")
    if "api" in values:
        values["api"] = Api(values["api"])
    if "grammar" in values:
        values["grammar"] = Grammar(values["grammar"])
    return Features(**values)
