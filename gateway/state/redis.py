"""The store that gateways share through Redis.

Needs the package `redis`; importing this module without it raises ModuleNotFoundError saying so.
"""

import random
from collections.abc import Callable, Mapping

from gateway.state.health import Health
from gateway.state.options import RedisOptions
from gateway.state.redislink import FAILURES, RedisLink, open_link
from gateway.state.shared import SharedStore


class RedisStore(SharedStore):
    """A `SharedStore` of all gateways with the same options.

    No lease is granted for as long as one lasts after Redis was started again, emptied or replaced by another server.
    """

    def __init__(
        self,
        options: RedisOptions,
        *,
        clock: Callable[[], float],
        ttls_s: Mapping[str, float] | None = None,
        random_source: random.Random | None = None,
    ) -> None:
        """See `SharedStore`."""

        async def link() -> RedisLink:
            return await open_link(options)

        health = Health("redis", str(options.address), clock)
        super().__init__(link, FAILURES, health, options, clock=clock, ttls_s=ttls_s, random_source=random_source)
