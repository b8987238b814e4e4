"""What runs to find the members of pools, and the way of what it finds into the fleet.

One producer for each pool that has one; a reload that changes nothing about it leaves it alone. Owns the belief in what
was found (discovery/guard.py). Looks at nothing itself.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pydantic import ValidationError

from gateway.control.config import Config, ReplicaConfig
from gateway.control.discoverconfig import DiscoverConfig
from gateway.discovery.guard import Guard
from gateway.discovery.member import Member
from gateway.fleet import Fleet

log = structlog.get_logger("steplane.discovery")


class Discoveries:
    """See the module."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._running: dict[str, _Discovery] = {}

    def update(self, config: Config) -> None:
        """Look for what this configuration wants to be found, and for nothing else. Returns at once."""
        wanted = {name: part.discover for name, part in config.pools.items() if part.discover is not None}
        for name, running in list(self._running.items()):
            if wanted.get(name) != running.part:
                running.stop()
                del self._running[name]
        for name, part in wanted.items():
            if name not in self._running:
                self._running[name] = running = _Discovery(name, part, self._fleet, self._clock)
                running.start(config.folder)

    def errors(self) -> Mapping[str, str | None]:
        """By pool: why its members are not known at the moment, None where they are."""
        return {name: running.error for name, running in self._running.items()}

    async def close(self) -> None:
        """Stop looking."""
        tasks = [task for running in self._running.values() for task in running.stop()]
        self._running.clear()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class _Discovery:
    """Of one pool.

    error:   what went wrong last, until it goes well again.
    configs: the members that were found last, as the configuration would name them.
    """

    pool: str
    part: DiscoverConfig
    fleet: Fleet
    clock: Callable[[], float]
    error: str | None = None
    guard: Guard = field(init=False)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    again: asyncio.Task[None] | None = None
    configs: dict[Member, ReplicaConfig] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.guard = Guard(self.part.max_removed_percent, self.part.settle_s, self.clock)

    def start(self, folder: Path) -> None:
        producer = self.part.producer(self.pool, folder)
        work = producer.run(self._found, self._failed)
        self.tasks.append(asyncio.create_task(work, name=f"discovery of {self.pool}"))

    def stop(self) -> list[asyncio.Task[None]]:
        """The tasks that are ending."""
        tasks = [*self.tasks, *([self.again] if self.again is not None else [])]
        for task in tasks:
            task.cancel()
        return tasks

    async def _found(self, members: Sequence[Member]) -> None:
        if self.again is not None and self.again is not asyncio.current_task():
            self.again.cancel()
            self.again = None
        replicas = self._replicas(members)
        doubt = self.guard.judge(replicas.keys())
        if doubt is not None:
            self._failed(doubt.why)
            self.again = asyncio.create_task(self._look_again(doubt.again_in_s, members))
            return
        log.info("discovered", pool=self.pool, replicas=len(replicas))
        await self.fleet.discovered(self.pool, replicas)

    async def _look_again(self, wait_s: float, members: Sequence[Member]) -> None:
        await asyncio.sleep(wait_s)
        await self._found(members)

    def _failed(self, why: str | None) -> None:
        if why is not None and why != self.error:
            log.warning("discovery_failed", pool=self.pool, error=why)
        self.error = why

    def _replicas(self, members: Sequence[Member]) -> dict[str, ReplicaConfig]:
        """As the configuration would name them. One that it could not name is left out, which is said."""
        before, self.configs = self.configs, {}
        replicas: dict[str, ReplicaConfig] = {}
        for member in members:
            # Of thousands few are new each time.
            replica = before.get(member) or self._replica(member)
            if replica is not None:
                self.configs[member] = replica
                replicas[replica.label] = replica
        return replicas

    def _replica(self, member: Member) -> ReplicaConfig | None:
        wanted: dict[str, object] = {"url": member.url}
        if member.name is not None:
            wanted["name"] = member.name
        if member.weight is not None:
            wanted["weight"] = member.weight
        if member.zone:
            wanted["zone"] = member.zone
        try:
            return ReplicaConfig.model_validate(wanted)
        except ValidationError as error:
            said = error.errors(include_url=False)[0]["msg"]
            log.error("member_unusable", pool=self.pool, url=member.url, name=member.name, error=said)
            return None
