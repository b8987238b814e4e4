"""What the gateway decides for one request, and why, as one plain object.

The command `steplane explain` and `POST /api/v1/explain` print the same object; both come here. The command decides on
paper, the other knows what was observed and what is quarantined. Changes nothing: what is explained is no probe.
"""

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gateway.breaker.record import Kind
from gateway.breaker.trust import Trust
from gateway.breaker.verdict import Verdict
from gateway.control.config import Config, HookCostConfig
from gateway.control.figures import number
from gateway.hookcost import Classification, Classifier, HookCost
from gateway.hookcost.costbook import CostBook
from gateway.hookcost.edits import BodyEdits
from gateway.hookcost.explain import CostExplanation
from gateway.hookcost.explain import explain_in_turns as explain_cost_in_turns
from gateway.hookcost.turns import at_once
from gateway.routing.explanation import RuleVerdict, explain_rules
from gateway.routing.head import PaperHead
from gateway.routing.request import RouteRequest
from gateway.routing.router import Decision, Rejection, Router, overflow_of, welcomes

Explanation = dict[str, Any]
"""Plain data that JSON can hold; the keys are listed at `explain`."""


@dataclass(frozen=True, slots=True)
class Experience:
    """What a running gateway has learned."""

    config: Config
    trust: Trust
    book: CostBook


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that nobody has sent.

    path:    with its query. tenant: whose it is, "" for nobody's. headers: names and values.
    pools:   those that the tenant may use; None: any.
    """

    path: str
    body: bytes
    method: str = "POST"
    tenant: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    pools: frozenset[str] | None = None


def header_in(line: str) -> tuple[str, str] | None:
    """Name and value of a header for `Asked`, as people write one, `x-tier: gold`; None: it is none."""
    name, colon, value = line.partition(":")
    if not colon or not name.strip().isascii() or any(ord(character) > 255 for character in value):
        return None
    return name.strip(), value.strip()


def explain(router: Router, classifier: Classifier, hookcost: HookCostConfig, asked: Asked) -> Explanation:
    """The decision for one request with the replicas as they are now.

    pool, route:    where it goes and the rule that said so; null when it goes nowhere.
    spilled_from:   the rule's own pool where another one stands in for it, else null.
    when_full:      the pools that take it while that pool has no room and they have some to spare, in this order.
    quarantined_from: where it would go, were it not quarantined; null when it is not, or goes to quarantine anyhow.
    refusal:        set when the body is answered with an error instead: `status`, `code`, `message`, `param`.
    rejection:      set when no pool can take it: `status`, `code`, `message`, `retry_after_s`.
    signature, grammar_key: the identities of its cost and of its grammar.
    cost:           what is reckoned with: `compile_ms`, `step_us`, `by_hook`, `heavy`, `refused`, `front_end_us`; see
                    `HookCost`.
    predicted:      the same without what was observed.
    observed:       what was observed of the signature; null on paper, and where nothing was.
    quarantine:     the breaker that bars it: `signature` or `tenant`, `state`, `cause` and what else a client is told;
                    null on paper, and where none does.
    backend:        the grammar backend that all of this is for: `name`, `version`.
    contributions:  what each feature and each mechanism of the grammar adds, dearest first: `hook`, `name`,
                    `quantity`, `compile_ms`, `step_us`. They add up to `predicted`.
    places:         the dearest places of the grammar: `param` of the body, `pointer` in it, `mechanism`, `compile_ms`,
                    `step_us`, `advice`.
    features:       all that was read from the body.
    changes:        what the rule changes: `body` and what that is then reckoned with (`signature`, `step_us`,
                    `compile_ms`), `set_headers` and `strip_headers` (names), `response_headers`, and the pool that gets
                    a copy (`shadow`); null where it changes nothing.
    why:            one sentence.
    rules:          every rule looked at, with what each condition wanted and saw.
    """
    return at_once(explain_in_turns(router, classifier, hookcost, asked))


def explain_in_turns(
    router: Router,
    classifier: Classifier,
    hookcost: HookCostConfig,
    asked: Asked,
    experience: Experience | None = None,
) -> Generator[None, None, Explanation]:
    """The same in turns of about a millisecond, for a caller that has an event loop to share."""
    # The same cut as on the way of a real request: rules see the path without its query.
    path, body = asked.path.partition("?")[0], asked.body
    begun = classifier.begin(path, body)
    classification = begun if isinstance(begun, Classification) else (yield from begun)
    predicted = classification.cost
    backend, version = hookcost.grammar_backend, hookcost.grammar_backend_version
    if classification.refusal is not None:
        prices = classifier.model.backend(backend, version)
        nothing = CostExplanation(prices.name, prices.version, (), ())
        return _object(classification, predicted, None, (), nothing, None, None, None, "", ())
    explained = yield from explain_cost_in_turns(classifier.model, path, body, backend, version)
    verdict = None
    if experience is not None:
        verdict = _verdict(experience, asked.tenant, classification.signature, predicted)
        if predicted.costly:
            classification = classification.priced(experience.book.blended(classification))
    request = RouteRequest(asked.method, path, classification, asked.tenant, PaperHead(asked.path, asked.headers))
    request.pools = asked.pools
    rules = explain_rules(router.rules, request, router.knows)
    decision = router.decided_by(len(rules) - 1, request)
    if experience is not None and verdict is not None:
        decision = _judged(router, experience.config, decision, request, verdict)
    changes = yield from _changes(decision, classifier, path, classification, body)
    stood_in = _stood_in(router, decision, request)
    hosts = _hosts(router, decision, request)
    return _object(classification, predicted, decision, rules, explained, verdict, experience, changes, stood_in, hosts)


def _hosts(router: Router, decision: Decision, request: RouteRequest) -> tuple[str, ...]:
    """The pools that take it, in this order and as far as they have room to spare, while its own is full."""
    pool = decision.pool
    if pool is None or decision.quarantined_from is not None:
        return ()
    hosts = overflow_of(pool.name, router.pools)
    return tuple([host.name for host in hosts if welcomes(host, pool, request.classification, request.pools)])


def _stood_in(router: Router, decision: Decision, request: RouteRequest) -> str:
    """Why another pool stands in for the rule's own; "" where none does."""
    if decision.spilled_from is None:
        return ""
    if request.pools is not None and decision.spilled_from not in request.pools:
        return f"tenant {request.tenant!r} may not use pool {decision.spilled_from!r}"
    capabilities = router.pools[decision.spilled_from].capabilities
    lack = None if capabilities is None else capabilities.lack(request.classification)
    if lack is None:
        return f"pool {decision.spilled_from!r} has no available replica"
    return f"pool {decision.spilled_from!r} can't take it: {lack.message}"


def _changes(
    decision: Decision, classifier: Classifier, path: str, classification: Classification, body: bytes
) -> Generator[None, None, dict[str, Any] | None]:
    """What the decision's rule changes in the request and in its answer; values of headers may be secrets."""
    actions = decision.actions
    if actions is None:
        return None
    pool = decision.pool
    engine = pool.replicas[0].engine if pool is not None and pool.replicas else ""
    edits = BodyEdits(actions.caps, actions.strips)
    edited = edits.apply(classification.features.api, engine, body)
    sent = classification
    if edited is not None:
        begun = classifier.begin(path, edited.body)
        sent = begun if isinstance(begun, Classification) else (yield from begun)
    return {
        "body": [] if edited is None else list(edited.changes),
        "signature": sent.signature,
        "step_us": sent.cost.step_us,
        "compile_ms": sent.cost.compile_ms,
        "set_headers": [name for name, _ in actions.set_headers],
        "strip_headers": list(actions.strip_headers),
        "response_headers": dict(actions.response_headers),
        "shadow": None if actions.shadow is None else actions.shadow.pool,
    }


def _verdict(experience: Experience, tenant: str, signature: str, predicted: HookCost) -> Verdict | None:
    """What `Trust.verdict` would say, without a request's having asked."""
    found = experience.trust.standing(Kind.signature, signature)
    if found is None and predicted.costly:
        found = experience.trust.standing(Kind.tenant, tenant)
    return found


def _judged(router: Router, config: Config, decision: Decision, request: RouteRequest, verdict: Verdict) -> Decision:
    """Where a quarantined request goes; a probe goes to quarantine even from a pool that refuses."""
    pool = decision.pool
    if pool is None or pool.name == config.quarantine_pool:
        return decision
    if router.has_quarantine() and config.pools[pool.name].breaker.on_open == "quarantine":
        return router.quarantined(decision, request)
    refused = Rejection(429, "quarantined", verdict.message, verdict.retry_after_s)
    return Decision(None, decision.rule, rejection=refused, quarantined_from=pool.name)


def _object(
    classification: Classification,
    predicted: HookCost,
    decision: Decision | None,
    verdicts: tuple[RuleVerdict, ...],
    explained: CostExplanation,
    quarantine: Verdict | None,
    experience: Experience | None,
    changes: dict[str, Any] | None,
    stood_in: str,
    hosts: tuple[str, ...],
) -> Explanation:
    pool = decision.pool if decision else None
    entry = experience.book.entry(classification.signature) if experience is not None else None
    observed = None if entry is None else entry.document()
    if observed is not None:
        del observed["last_seen_s"]  # of a clock that nobody else has
    return {
        "pool": pool.name if pool else None,
        "route": decision.rule if decision else None,
        "spilled_from": decision.spilled_from if decision else None,
        "when_full": list(hosts),
        "quarantined_from": decision.quarantined_from if decision else None,
        "refusal": asdict(classification.refusal) if classification.refusal else None,
        "rejection": asdict(decision.rejection) if decision and decision.rejection else None,
        "signature": classification.signature,
        "grammar_key": classification.grammar_key,
        "cost": _cost(classification.cost),
        "predicted": _cost(predicted),
        "observed": observed,
        "quarantine": None if quarantine is None else quarantine.document(),
        "backend": {"name": explained.backend, "version": explained.version},
        "contributions": [asdict(each) for each in explained.contributions],
        "places": [asdict(each) for each in explained.places],
        "step_budget_us": pool.step_budget_us if pool else None,
        "features": asdict(classification.features),
        "changes": changes,
        "why": _why(classification, decision, verdicts, quarantine, stood_in),
        "rules": [asdict(verdict) for verdict in verdicts],
    }


def _cost(cost: HookCost) -> dict[str, Any]:
    return {
        "compile_ms": cost.compile_ms,
        "step_us": cost.step_us,
        "by_hook": dict(cost.by_hook),
        "heavy": cost.heavy,
        "refused": cost.refused,
        "front_end_us": cost.front_end_us,
    }


def _why(
    classification: Classification,
    decision: Decision | None,
    verdicts: tuple[RuleVerdict, ...],
    quarantine: Verdict | None,
    stood_in: str,
) -> str:
    if decision is None:
        assert classification.refusal is not None
        return f"refused with {classification.refusal.status}: {classification.refusal.message}"
    matched = verdicts[-1]
    if matched.conditions:
        seen = " and ".join(f"{each.key} is {value_shown(each.actual)}" for each in matched.conditions)
        wanted = {each.key: each.wanted for each in matched.conditions}
        why = f"rule {matched.rule!r} takes it: {seen} ({_when(wanted)})"
    else:
        why = f"rule {matched.rule!r} takes what no rule before it took"
    if quarantine is not None:
        why = f"{why}; {quarantine.message.rstrip('.')}"
    if decision.rejection is not None and decision.rejection.code == "quarantined":
        return f"{why}; pool {decision.quarantined_from!r} refuses what is quarantined with {decision.rejection.status}"
    if decision.rejection is not None:
        return f"{why}; rejected with {decision.rejection.status}: {decision.rejection.message}"
    return f"{why}; {stood_in}" if stood_in else why


def value_shown(actual: object) -> str:
    """A value that a condition saw, for people."""
    match actual:
        case None:
            return "absent"
        case bool():
            return "true" if actual else "false"
        case float():
            return number(actual)
        case dict():
            return ", ".join(f"{name} {value_shown(value)}" for name, value in actual.items())
    return str(actual)


def _when(wanted: Mapping[str, object]) -> str:
    return "the rule wants " + ", ".join(f"{key}: {wanted_shown(value)}" for key, value in wanted.items())


def wanted_shown(value: object) -> str:
    """What a condition wants, as it stands in the YAML."""
    if isinstance(value, list):
        return f"[{', '.join(map(wanted_shown, value))}]"
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
