"""Who looks at requests: the access log, the traces, the counts of tenants. Put together by the configuration.

What is not configured is not there: the data plane then has nobody to tell.
"""

import asyncio
import random
import sys
import time
from typing import TYPE_CHECKING

import structlog

from gateway.accesslog import AccessLog
from gateway.control.access import LineWriter
from gateway.control.config import Config
from gateway.control.logs import configure_logs, line_renderer
from gateway.control.tally import Tally
from gateway.proxy import Finished, Proxy
from gateway.tenantcount import TenantCount

if TYPE_CHECKING:
    from gateway.tracing import Tracing


class Watch:
    """See the module; of one gateway. All methods belong to its event loop."""

    def __init__(self, config: Config, proxy: Proxy, tally: Tally) -> None:
        self._proxy = proxy
        self._tally = tally
        self._ours: tuple[Finished, ...] = ()
        self._logs = config.logs
        self._writer: LineWriter | None = None
        self._tracing: Tracing | None = None
        if config.tracing is not None:
            # Whoever traces nothing does not load OpenTelemetry.
            from gateway.tracing import start_tracing

            proxy.tracer = self._tracing = start_tracing(config.tracing, tally.exemplar)
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Look as another configuration says from now on; tracing is as it was."""
        if config.logs != self._logs:
            configure_logs(config.logs)
            self._logs = config.logs
        witnesses: list[Finished] = []
        self._proxy.turned_away = None
        access, writer = config.logs.access, None
        if access is not None:
            writer = LineWriter(sys.stderr, line_renderer(config.logs), structlog.contextvars.get_contextvars())
            log = AccessLog(access, writer.add, random.random, time.time)
            self._proxy.turned_away = log.turned_away
            witnesses.append(log)
        if config.tenants.named:
            witnesses.append(TenantCount(self._tally, config.tenants.named))
        if self._tracing is not None:
            witnesses.append(self._tracing)
        others = [each for each in self._proxy.witnesses if each not in self._ours]
        self._ours = tuple(witnesses)
        self._proxy.witnesses = (*others, *witnesses)
        old, self._writer = self._writer, writer
        if old is not None:
            old.end_soon()

    async def close(self) -> None:
        """Write and send what is left, a few seconds at most."""
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
