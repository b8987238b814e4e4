"""How a running gateway takes over another configuration: everything that a request is decided and carried by.

Joins the fleet, which changes by itself, to what is made anew: rules, prices, plans, limits. When that happens is not
decided here, and no configuration is read. What runs is finished by what it began with.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

from gateway.control.assembly import route_over
from gateway.control.classifier import build_classifier
from gateway.control.config import Config
from gateway.control.context import AdminContext
from gateway.control.retryplans import build_plans
from gateway.fleet import Fleet
from gateway.hookcost import Classifier
from gateway.oversight import Oversight
from gateway.proxy import Proxy
from gateway.routing.pool import Pool
from gateway.routing.router import Router
from gateway.tenantgate import TenantGate
from gateway.watch import Watch
from gateway.wire.limits import Limits, Timeouts
from gateway.wire.server import Server

_SWITCH_S = 0.0005
"""How soon a thread that computes lets the loop go on."""

Result = TypeVar("Result")


class TakeOver:
    """See the module. The parts are those of one gateway; `context` is kept true for the admin port."""

    def __init__(
        self, fleet: Fleet, proxy: Proxy, server: Server, oversight: Oversight, context: AdminContext, watch: Watch
    ) -> None:
        self._fleet = fleet
        self._proxy = proxy
        self._server = server
        self._oversight = oversight
        self._context = context
        self._watch = watch

    async def apply(self, config: Config) -> Router:
        """Become what `config` says, which was checked; its parts that need a restart are as they were. The new rules.

        Raises OSError or ValueError, with nothing changed, where a file that it names has become unfit since.
        """
        keys = await _beside(lambda: config.tenants.keys(config.folder))
        classifier = self._context.classifier
        if config.hookcost != self._context.config.hookcost or config.hookcost.cost_model is not None:
            classifier = await _beside(lambda: build_classifier(config))

        async def prepare(pools: Mapping[str, Pool]) -> Callable[[], None]:
            router = await _beside(lambda: route_over(config, pools, self._context.router.knows))
            return lambda: self._decide(config, router, classifier, keys)

        await self._fleet.apply(config, prepare)
        return self._context.router

    def _decide(self, config: Config, router: Router, classifier: Classifier, keys: Mapping[str, str]) -> None:
        """From here on requests are decided by the new configuration."""
        context, fleet, proxy = self._context, self._fleet, self._proxy
        context.tally.fold()
        plans = build_plans(config, context.tally, context.clock)
        refuses_control = config.control_paths == "refuse"
        proxy.reconfigure(router, fleet.links, fleet.terms, classifier, plans, refuses_control=refuses_control)
        self._oversight.trust.reconfigure(config.breaker.policy(config.quarantine_pool))
        limits, timeouts = Limits(**config.limits.model_dump()), Timeouts(**config.timeouts.model_dump())
        self._server.configure(limits, timeouts, config.forwarding.build())
        self._server.reload_certificates()
        if proxy.models is not None:
            proxy.models.configure(config.models)
        self._watch.configure(config)
        tenants, wanted = context.tenants, config.tenants
        tenants.configure(
            header=wanted.header,
            require_key=wanted.require_key,
            named=wanted.profiles(),
            unnamed=wanted.unnamed(),
            keys=keys,
        )
        if tenants.restricts and proxy.gate is None:
            proxy.gate = TenantGate(tenants, proxy.decide, context.clock)
            self._oversight.spent = proxy.gate.observed
        context.config, context.router, context.classifier = config, router, classifier


async def _beside(work: Callable[[], Result]) -> Result:
    """Do what takes tens of milliseconds in a thread, and have it let the loop go on a thousand times a second."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        return await asyncio.to_thread(work)
    finally:
        sys.setswitchinterval(usual_s)
