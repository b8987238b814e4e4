"""What engines say of themselves, brought to where requests are routed: their load, and what they can take.

Only engines of pools that want it are asked: for their load where that is balanced by, for what they can take where the
configuration leaves it to them. Decides nothing. One event loop; nothing here is waited for by a request.
"""

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from gateway.control.balanceconfig import LoadsConfig
from gateway.control.config import Config, PoolConfig
from gateway.feed.loads import ask_load
from gateway.feed.reach import Reach
from gateway.feed.serverfacts import ServerFacts, ask_facts
from gateway.feed.session import ReplicaSession
from gateway.routing.capabilities import Capabilities
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica

log = structlog.get_logger("steplane.engines")

_TICK_S = 0.1
_IDLE_TICK_S = 1.0
"""While no pool wants anything."""
_FACTS_S = 60.0
_FACTS_SOON_S = 2.0
"""Until a replica has said for the first time what it can take."""
_FACTS_TIMEOUT_S = 5.0
_KEEP_S = 4.0
"""Connections are kept for the next question: shorter than engines keep them (uvicorn: 5 s)."""
_SPREAD_S = 0.002
"""First questions to many replicas are this far apart."""


class Watched(Protocol):
    """Where the pools of the moment are; a `Fleet`."""

    @property
    def config(self) -> Config: ...
    @property
    def pools(self) -> Mapping[str, Pool]: ...


@dataclass(slots=True)
class _Heard:
    """What is known of one replica, and when it is asked next (clock readings; infinite while it is being asked)."""

    load_at_s: float
    facts_at_s: float
    heard_s: float = -math.inf
    facts: ServerFacts | None = None


class EngineReports:
    """See the module."""

    def __init__(self, watched: Watched, reach: Reach | None = None, clock: Callable[[], float] | None = None) -> None:
        """`reach`: the ways to replicas; `clock`: monotonic, in seconds."""
        self._watched = watched
        self._reach = reach
        self._clock = clock or asyncio.get_running_loop().time
        self._heard: dict[Replica, _Heard] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._session: ReplicaSession | None = None

    def start(self) -> None:
        """Begin to ask; returns at once."""
        self._session = ReplicaSession("loads", self._reach or Reach(), keep_s=_KEEP_S)
        self._ticking = asyncio.create_task(self._tick(self._session), name="engine reports")

    async def close(self) -> None:
        """Stop asking."""
        tasks = [*self._asking, *([self._ticking] if self._ticking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def recheck(self, replica: Replica) -> None:
        """Ask a replica soon what it can take: it may have been started anew as another."""
        heard = self._heard.get(replica)
        if heard is not None:
            heard.facts_at_s = min(heard.facts_at_s, self._clock())

    async def _tick(self, session: ReplicaSession) -> None:
        while True:
            try:
                wanted = self._ask_all(session)
            except Exception:
                log.exception("engine_reports_failed")
                wanted = False
            await asyncio.sleep(_TICK_S if wanted else _IDLE_TICK_S)

    def _ask_all(self, session: ReplicaSession) -> bool:
        """Ask those whose turn it is; whether any pool wants that."""
        now_s = self._clock()
        present: set[Replica] = set()
        parts = self._watched.config.pools
        for name, pool in self._watched.pools.items():
            part = parts.get(name)
            if part is None or not (part.balance.wants_loads or part.capabilities.from_server):
                continue
            present.update(pool.replicas)
            for replica in pool.replicas:
                self._ask(session, replica, part, now_s)
            if part.capabilities.from_server:
                self._conclude(pool, part)
        for gone in self._heard.keys() - present:
            gone.elsewhere, gone.cache_usage = 0.0, -1.0
            del self._heard[gone]
        return bool(present)

    def _ask(self, session: ReplicaSession, replica: Replica, part: PoolConfig, now_s: float) -> None:
        heard = self._heard.get(replica)
        if heard is None:
            # Spread over the interval, so that a large fleet is not asked all at once.
            spread_s = min(part.loads.interval_s, _SPREAD_S * len(self._heard))
            heard = self._heard[replica] = _Heard(now_s + random.uniform(0, spread_s), now_s)
        if part.balance.wants_loads:
            if now_s - heard.heard_s > part.loads.stale_s:
                replica.elsewhere, replica.cache_usage = 0.0, -1.0
            if now_s >= heard.load_at_s and replica.healthy:
                heard.load_at_s = math.inf
                self._begin(self._load(session, replica, heard, part.loads))
        if part.capabilities.from_server and now_s >= heard.facts_at_s and replica.healthy:
            heard.facts_at_s = math.inf
            self._begin(self._facts(session, replica, heard))

    def _begin(self, asking: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(asking, name="engine report")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _load(self, session: ReplicaSession, replica: Replica, heard: _Heard, how: LoadsConfig) -> None:
        before = replica.in_flight
        load = await ask_load(session, replica.url, replica.engine, how.stale_s)
        now_s = self._clock()
        heard.load_at_s = now_s + how.interval_s
        if load is not None:
            heard.heard_s = now_s
            # What came or went while it was asked is in doubt, and counts as ours.
            replica.elsewhere = max(0.0, float(load.running + load.waiting - max(before, replica.in_flight)))
            replica.cache_usage = -1.0 if load.cache_usage is None else load.cache_usage

    async def _facts(self, session: ReplicaSession, replica: Replica, heard: _Heard) -> None:
        heard.facts = await ask_facts(session, replica.url, replica.engine, _FACTS_TIMEOUT_S) or heard.facts
        heard.facts_at_s = self._clock() + (_FACTS_SOON_S if heard.facts is None else _FACTS_S)

    def _conclude(self, pool: Pool, part: PoolConfig) -> None:
        """What a pool can take is what all of its replicas can that have said so."""
        known = [heard.facts for each in pool.replicas if (heard := self._heard.get(each)) is not None and heard.facts]
        if not known:
            return
        said = part.capabilities
        models = frozenset.intersection(*[facts.models for facts in known])
        lora = frozenset.intersection(*[facts.lora for facts in known])
        capabilities = Capabilities(
            grammar=said.grammar and (said.grammar_with_speculative or not any(facts.speculative for facts in known)),
            logprobs=said.logprobs,
            prompt_logprobs=said.prompt_logprobs,
            max_top_logprobs=said.max_top_logprobs,
            models=frozenset(said.models) if said.models is not None else models or None,
            lora=frozenset(said.lora) or lora,
        )
        if capabilities != pool.capabilities:
            log.info("capabilities", pool=pool.name, grammar=capabilities.grammar, models=sorted(models))
            pool.capabilities = capabilities
        backends = {facts.grammar_backend for facts in known}
        if part.backend is None and len(backends) == 1:
            (backend,) = backends
            usual = self._watched.config.hookcost.grammar_backend
            pool.backend = None if backend == usual else backend
