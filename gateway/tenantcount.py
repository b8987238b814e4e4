"""Counts requests by tenant: those that the configuration names, so that there are as many as that says."""

from collections.abc import Iterable

from gateway.call import Attempt, Call
from gateway.control.tally import Tally
from gateway.wire.exchange import Exchange


class TenantCount:
    """A `proxy.Finished`; made where tenants are named."""

    def __init__(self, tally: Tally, named: Iterable[str]) -> None:
        self._counts = tally.by_tenant
        for name in ("", *named):
            self._counts.setdefault(name, [0] * 10)

    def finished(self, exchange: Exchange, call: Call, attempt: Attempt | None, now_s: float) -> None:  # noqa: ARG002
        """A request is over."""
        counts = self._counts.get(call.request.tenant)
        if counts is None:
            counts = self._counts[""]
        counts[exchange.status // 100] += 1
