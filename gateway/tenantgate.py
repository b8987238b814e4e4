"""What a tenant may ask for, applied to one request: before it is routed, while it is answered, and when it is over.

Joins `tenants` to the data plane. Made only where some tenant is limited in something: without it nothing is asked.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.hookcost.features import Api
from gateway.hookcost.prompt import BYTES_PER_TOKEN
from gateway.routing.router import POOL_NOT_ALLOWED
from gateway.tenants.allowance import Allowance, Resource
from gateway.tenants.register import Register
from gateway.wire.message import Reply, error_reply

if TYPE_CHECKING:
    from gateway.call import Call
    from gateway.hookcost.observation import Origin
    from gateway.routing.request import RouteRequest
    from gateway.routing.router import Decision
    from gateway.wire.exchange import Exchange

_EXPECTED_TOKENS: Final = 256
"""Of a reply, where its request sets no limit; what it really had is charged when it is over."""
_LONGEST_WAIT_S: Final = 3600
_MOST_COMPILED: Final = 1000
"""Grammars that are taken to be in the engines' caches."""
_USAGE: Final = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')
_EVENT: Final = b"data:"
_WHAT: Final = {
    Resource.requests: "requests",
    Resource.tokens: "tokens",
    Resource.hook_us: "hook time on the engines' step threads",
}


class Meter:
    """What one request of a limited tenant was charged so far, and what its stream has brought.

    expected: tokens of the reply that were charged when it came.
    hook_us:  hook time that was.
    events:   of its stream; an engine sends one for each token, or for several where it guesses ahead.
    watched:  a step feed tells what its hooks take; else the prediction counts.
    """

    __slots__ = ("_exchange", "_inner", "allowance", "events", "expected", "hook_us", "watched")

    def __init__(self, allowance: Allowance, expected: float, hook_us: float) -> None:
        self.allowance = allowance
        self.expected = expected
        self.hook_us = hook_us
        self.events = 0
        self.watched = False
        self._exchange: Exchange
        self._inner: Callable[[float], None] | None = None

    def begin(self, exchange: Exchange, *, watched: bool) -> None:
        """An attempt begins: count what its stream brings, beside whoever listens already."""
        self.watched = watched
        self._exchange = exchange
        if exchange.on_read != self.read:
            self._inner = exchange.on_read
            exchange.on_read = self.read

    def read(self, now_s: float) -> None:
        """A part of the response has come."""
        connection = self._exchange.connection
        if connection is not None:
            self.events += connection.last_read.count(_EVENT)
        if self._inner is not None:
            self._inner(now_s)


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a request is not let in, for the metrics, and what it is answered with."""

    code: str
    reply: Reply


class TenantGate:
    """See the module. `decide` is the router's: who may not use a pool is told so before anything waits."""

    def __init__(
        self,
        register: Register,
        decide: Callable[[RouteRequest], Decision],
        clock: Callable[[], float],
    ) -> None:
        self._register = register
        self._decide = decide
        self._clock = clock
        self._compiled: OrderedDict[str, None] = OrderedDict()

    def check(self, call: Call) -> Denial | None:
        """Why its tenant may not ask for it, or not now; None lets it in and charges what it is expected to cost."""
        register = self._register
        tenant = call.tenant
        if not tenant and register.require_key:
            return _UNKNOWN_KEY
        profile = register.profile(tenant)
        features = call.features
        if not profile.may_use(features.model):
            message = f"the model {features.model!r} does not exist, or this key may not use it"
            return _denial(404, "model_not_found", message, "model")
        if profile.pools is not None:
            # For good: it holds where it spills, is tried again, or is routed by other rules, too.
            call.request.pools = profile.pools
            rejection = self._decide(call.request).rejection
            if rejection is not None and rejection.code == POOL_NOT_ALLOWED:
                return _denial(rejection.status, rejection.code, rejection.message)
        allowance = register.allowance(tenant)
        return None if allowance is None else self._take(call, allowance)

    def finished(self, exchange: Exchange, call: Call, meter: Meter) -> None:
        """It is over: charge what its reply really had instead of what was expected."""
        tokens = float(meter.events)
        if not call.features.stream and call.attempts and exchange.status < 300:
            usage = _USAGE.search(exchange.last_read)
            tokens = float(usage[1]) if usage is not None else meter.expected
        # What a feed tells of is charged as it is told; else the prediction has to do.
        hook_us = -meter.hook_us if meter.watched else call.step_us * tokens
        self._spend(call.tenant, meter.allowance, {Resource.tokens: tokens - meter.expected, Resource.hook_us: hook_us})

    def observed(self, origin: Origin, hook_us: float) -> None:
        """A step feed told what a request's hooks, or the compilation of its grammar, took."""
        allowance = self._register.allowance(origin.tenant)
        if allowance is not None:
            self._spend(origin.tenant, allowance, {Resource.hook_us: hook_us})

    # --- inside

    def _take(self, call: Call, allowance: Allowance) -> Denial | None:
        features = call.features
        generates = features.api is not Api.other
        expected = 0.0
        if generates:
            longest = _EXPECTED_TOKENS if features.max_tokens is None else min(features.max_tokens, _EXPECTED_TOKENS)
            expected = float(features.n * features.batch * longest)
        prompt = features.prompt_bytes / BYTES_PER_TOKEN
        compile_us = self._compile_us(call)
        now_s = self._clock()
        excess = allowance.take(prompt + expected, compile_us, now_s)
        if excess is not None:
            wait_s = min(_LONGEST_WAIT_S, math.ceil(excess.retry_after_s))
            message = f"more {_WHAT[excess.resource]} than this key may use; try again in {wait_s} s"
            lines = b"retry-after: %d\r\n%b" % (wait_s, allowance.header_lines(now_s))
            reply = error_reply(429, message, "rate_limit_exceeded", headers=lines)
            return Denial("rate_limit_exceeded", reply)
        used = self._register.used
        used(call.tenant, Resource.requests, 1.0)
        used(call.tenant, Resource.tokens, prompt + expected)
        used(call.tenant, Resource.hook_us, compile_us)
        if compile_us:
            self._compiled[call.request.classification.grammar_key] = None
            if len(self._compiled) > _MOST_COMPILED:
                self._compiled.popitem(last=False)
        call.limit_lines = allowance.header_lines(now_s)
        if generates and (allowance.limits(Resource.tokens) or allowance.limits(Resource.hook_us)):
            call.meter = Meter(allowance, expected, compile_us)
        return None

    def _compile_us(self, call: Call) -> float:
        """What its grammar will take to compile, unless it was lately: engines keep them."""
        classification = call.request.classification
        if not call.structured or classification.grammar_key in self._compiled:
            return 0.0
        return classification.cost.compile_ms * 1000.0

    def _spend(self, tenant: str, allowance: Allowance, amounts: dict[Resource, float]) -> None:
        allowance.spend(amounts, self._clock())
        for resource, amount in amounts.items():
            self._register.used(tenant, resource, amount)


def _denial(status: int, code: str, message: str, param: str | None = None, headers: bytes = b"") -> Denial:
    return Denial(code, error_reply(status, message, code, param=param, headers=headers))


_UNKNOWN_KEY: Final = _denial(
    401,
    "invalid_api_key",
    "no API key that is known here: send one as `Authorization: Bearer KEY` or in `x-api-key`",
    headers=b"www-authenticate: Bearer\r\n",
)
