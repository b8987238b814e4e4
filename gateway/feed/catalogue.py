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
"""Until a replica has answered once it is asked this often."""
_AT_A_TIME = 16
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
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask them; returns at once."""
        self._session = open_session("models", self._reach)
        self._asking = asyncio.create_task(self._ask_on(), name="models")

    async def close(self) -> None:
        """Stop asking; what is known stays readable."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def recheck(self, name: str) -> None:
        """Ask one replica soon: it has come up, and may have been started anew with another model."""
        watch = self._watches.get(name)
        if watch is not None:
            watch.due_s = self._clock()

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

    async def _ask_on(self) -> None:
        while True:
            self._look_around()
            now_s = self._clock()
            due = [watch for watch in self._watches.values() if watch.due_s <= now_s]
            for at in range(0, len(due), _AT_A_TIME):
                await asyncio.gather(*(self._ask(watch) for watch in due[at : at + _AT_A_TIME]))
            await asyncio.sleep(_TICK_S)

    async def _ask(self, watch: _Watch) -> None:
        assert self._session is not None
        watch.due_s = self._clock() + self.refresh_s
        try:
            async with self._session.get(watch.replica.url + _PATH, timeout=_TIMEOUT) as response:
                if response.status not in (200, 404):
                    raise ValueError(f"answered {response.status}")
                cards = model_cards(await read_document(response, _MOST_BYTES))
                if response.status == 404:
                    cards = []  # it serves what it serves: nobody can be told
                if cards is None:
                    raise ValueError(f"no list `data` in {_MOST_BYTES} bytes")
                models = tuple(cards[:_MOST_MODELS])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if watch.models is None:
                watch.due_s = self._clock() + _AGAIN_S
            _log.debug("models_not_read", replica=watch.replica.name, error=str(error) or type(error).__name__)
            return
        if models != watch.models:
            watch.models = models
            self.changed()
