"""Which models the replicas serve, by their own word: reads each one's `/v1/models` now and then, and joins the lists.

Owns the reading and the joining. Which pool a model goes to is the rules'. What a replica said last is kept while it
does not answer.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import structlog

from gateway.feed.reach import Reach
from gateway.feed.servedmodel import model_cards
from gateway.feed.session import ReplicaSession, open_session, read_document

_PATH = "/v1/models"
_TIMEOUT = aiohttp.ClientTimeout(total=5.0)
_AGAIN_S = 2.0
"""A replica that has never answered is asked again after this; then after twice as long, up to `refresh_s`."""
_IN_ONE_TURN = 4
_TURN_S = 0.01
"""Of a thousand replicas that are new together only a few are asked at once: the loop carries requests, too."""
_TICK_S = 0.25
_MOST_BYTES = 1 << 20
_MOST_MODELS = 1000
"""Of one replica: an engine with many LoRA adapters names each."""

_log = structlog.get_logger("steplane.models")


class Serving(Protocol):
    """What is needed of a replica."""

    name: str
    url: str


@dataclass(slots=True)
class _Watch:
    replica: Serving
    due_s: float
    again_s: float = _AGAIN_S
    asking: asyncio.Task[None] | None = None
    models: tuple[dict[str, Any], ...] | None = None


class Catalogue:
    """The models of all replicas. All methods belong to one event loop.

    changed: called after any replica's list has become another one.
    """

    def __init__(
        self,
        replicas: Callable[[], Iterable[Serving]],
        refresh_s: float,
        *,
        clock: Callable[[], float],
        reach: Reach | None = None,
    ) -> None:
        """`replicas`: those of the moment. `clock` gives seconds, and is only read; `reach`: the ways to replicas."""
        self.changed: Callable[[], None] = lambda: None
        self.refresh_s = refresh_s
        self.wanted = True
        """While nobody wants to know, nobody is asked."""
        self._replicas = replicas
        self._clock = clock
        self._reach = reach
        self._watches: dict[str, _Watch] = {}
        self._session: ReplicaSession | None = None
        self._going_round: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to ask them; returns at once."""
        self._session = open_session("models", self._reach)
        self._going_round = asyncio.create_task(self._go_round(), name="models")

    async def close(self) -> None:
        """Stop asking; what is known stays readable."""
        tasks = [*self._asking, *([self._going_round] if self._going_round is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def recheck(self, name: str) -> None:
        """Ask one replica soon: it has come up, and may have been started anew with another model."""
        watch = self._watches.get(name)
        if watch is not None:
            watch.due_s, watch.again_s = self._clock(), _AGAIN_S

    @property
    def complete(self) -> bool:
        """Whether every replica has said what it serves, so that a model that none has named is unknown."""
        watches = self._watches.values()
        return bool(watches) and all(watch.models is not None for watch in watches)

    @property
    def differs(self) -> bool:
        """Whether the replicas serve different models, as far as they have said."""
        said = {frozenset(model["id"] for model in watch.models) for watch in self._watches.values() if watch.models}
        return len(said) > 1

    def names(self) -> frozenset[str]:
        """All models that some replica serves."""
        return frozenset(self.models())

    def models(self) -> Mapping[str, dict[str, Any]]:
        """What the replicas say of each model, by its name: the word of the first that serves it."""
        joined: dict[str, dict[str, Any]] = {}
        for watch in self._watches.values():
            for model in watch.models or ():
                joined.setdefault(model["id"], model)
        return joined

    # --- inside

    def _look_around(self) -> None:
        """Who is there now: new ones are asked at once, the others are forgotten."""
        known, now_s = self._watches, self._clock()
        self._watches = {}
        for replica in self._replicas() if self.wanted else ():
            watch = known.get(replica.name)
            if watch is None or watch.replica is not replica:
                watch = _Watch(replica, now_s)
            self._watches[replica.name] = watch
        if any(self._watches.get(name) is not watch for name, watch in known.items()):
            self.changed()

    async def _go_round(self) -> None:
        while True:
            self._look_around()
            now_s = self._clock()
            due = [watch for watch in self._watches.values() if watch.due_s <= now_s and watch.asking is None]
            for at, watch in enumerate(due, 1):
                watch.due_s = self._clock() + self.refresh_s
                watch.asking = task = asyncio.create_task(self._ask(watch), name=f"models of {watch.replica.name}")
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)
                if at % _IN_ONE_TURN == 0:
                    await asyncio.sleep(_TURN_S)
            await asyncio.sleep(_TICK_S)

    async def _ask(self, watch: _Watch) -> None:
        assert self._session is not None
        try:
            models = await self._read(self._session, watch.replica)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if watch.models is None:
                watch.due_s = min(watch.due_s, self._clock() + watch.again_s)
                watch.again_s = min(2.0 * watch.again_s, self.refresh_s)
            _log.debug("models_not_read", replica=watch.replica.name, error=str(error) or type(error).__name__)
            return
        finally:
            watch.asking = None
        if models != watch.models:
            watch.models = models
            self.changed()

    async def _read(self, session: ReplicaSession, replica: Serving) -> tuple[dict[str, Any], ...]:
        """What it serves; raises ValueError for an answer that doesn't tell, and what the session raises."""
        async with session.get(replica.url + _PATH, timeout=_TIMEOUT) as response:
            if response.status == 404:
                return ()  # it serves what it serves: nobody can be told
            if response.status != 200:
                raise ValueError(f"answered {response.status}")
            cards = model_cards(await read_document(response, _MOST_BYTES))
            if cards is None:
                raise ValueError(f"no list `data` in {_MOST_BYTES} bytes")
            return tuple(cards[:_MOST_MODELS])
