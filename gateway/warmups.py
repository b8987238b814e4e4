"""Replicas that come up compile the grammars that are used most before they take requests.

Owns which grammars those are (a book for each pool that wants it, held in memory alone), and the one-token requests
with which a replica is fed. Whether it is picked meanwhile is routing's: a pool that has no other takes it cold. What
is sent here is nobody's: no tenant is charged, no request is tallied, no breaker hears of it. One event loop.
"""

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Protocol

import structlog
from aiohttp import ClientConnectorError, ClientError

from gateway.call import Call, Link
from gateway.control.config import Config
from gateway.control.warmupconfig import WarmUpConfig
from gateway.control.warmuptally import WarmUpTally
from gateway.feed.reach import Reach
from gateway.feed.session import ReplicaSession
from gateway.hookcost import Classifier
from gateway.hookcost.grammarbody import grammar_body
from gateway.hookcost.grammarbook import GrammarBook, Kept
from gateway.hookcost.paths import api_of
from gateway.hookcost.schemaspelling import SchemaSpelling
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.wire.exchange import Exchange

log = structlog.get_logger("steplane.warmups")

_MOST_BODY_BYTES = 1 << 20
"""A larger body's grammar is not looked for: it would hold up the event loop."""
_REFUSED = frozenset((400, 422))
"""What engines answer to a grammar that they do not take."""
_DROPPED = frozenset(("refused", "broken"))
"""Never sent again unless clients ask for it: what an engine died of must not keep it from coming up for good."""
_KEEP_S = 3.0
"""Below the idle limit of the engines' servers (uvicorn: 5 s)."""


class Watched(Protocol):
    """Where the pools of the moment are; a `Fleet`."""

    @property
    def config(self) -> Config: ...
    @property
    def pools(self) -> Mapping[str, Pool]: ...
    @property
    def links(self) -> Mapping[Replica, Link]: ...


class WarmUps:
    """See the module."""

    def __init__(
        self,
        watched: Watched,
        classifier: Callable[[], Classifier],
        barred: Container[str],
        refused: Callable[[Replica], None],
        tally: WarmUpTally,
        clock: Callable[[], float],
        reach: Reach | None = None,
    ) -> None:
        """`classifier`: that of the moment. barred: the signatures that are quarantined, always as they are.

        refused: is told of a replica that does not accept connections.
        """
        self._watched = watched
        self._classifier = classifier
        self._barred = barred
        self._refused = refused
        self._tally = tally
        self._clock = clock
        self._reach = reach or Reach()
        self._spelling = SchemaSpelling()
        self._books: dict[str, GrammarBook] = {}
        self._running: dict[Replica, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: ReplicaSession | None = None

    @property
    def wanted(self) -> bool:
        """Whether any pool wants its replicas warmed up, so that the grammars that are used need be known."""
        return bool(self._books)

    def configure(self, config: Config) -> None:
        """Go by another configuration; what is known of pools that still want it is kept."""
        books, self._books = self._books, {}
        for name, part in config.pools.items():
            how = part.warm_up
            if how is None:
                continue
            bounds = (how.grammars, how.keep_bytes, how.max_grammar_bytes)
            book = books.get(name)
            if book is None:
                book = GrammarBook(*bounds)
            else:
                book.bound(*bounds)
            self._books[name] = book
        for replica in [each for each in self._running if each.pool not in self._books]:
            self.left(replica)
            replica.warm(False)

    async def close(self) -> None:
        """End all warm-ups."""
        for replica in list(self._running):
            self.left(replica)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    # --- which grammars

    def sent(self, exchange: Exchange, call: Call, replica: Replica) -> None:
        """A request with a grammar is on its way to a replica: 0.3 to 2.5 µs, and some 20 when its grammar is kept."""
        book = self._books.get(replica.pool)
        classification = call.classification
        if book is None or call.verdict is not None or call.exiled or not classification.grammar_key:
            return
        key = (call.request.path, classification.grammar_key)
        if not book.used(key, classification.signature):
            return
        body = exchange.body if call.edit is None else call.edit.body
        if len(body) > _MOST_BODY_BYTES:
            return
        least = grammar_body(call.features.api, replica.engine, body)
        if least is None or not book.may_keep(least):
            return
        kept = self._classifier().classify(call.request.path, least)
        if kept.grammar_key == classification.grammar_key:
            book.keep(key, least, kept.signature)

    # --- who comes up

    def started(self, replica: Replica) -> None:
        """A replica is up and may have been started anew; to be called before it takes requests."""
        self.left(replica)
        part, pool = self._watched.config.pools.get(replica.pool), self._watched.pools.get(replica.pool)
        how = None if part is None else part.warm_up
        book = self._books.get(replica.pool)
        grammars = [] if book is None else [each for each in book.top() if self._may_be_sent(each)]
        if how is None or pool is None or not grammars:
            replica.warm(False)
            return
        replica.warm(pool.serves_beside(replica))
        task = asyncio.create_task(self._warm_up(replica, how, grammars), name=f"warm-up of {replica.name}")
        self._running[replica] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def left(self, replica: Replica) -> None:
        """A replica has left: there is nothing to warm up any more."""
        task = self._running.pop(replica, None)
        if task is not None:
            task.cancel()

    async def _warm_up(self, replica: Replica, how: WarmUpConfig, grammars: list[Kept]) -> None:
        log.info("warm_up", replica=replica.name, grammars=len(grammars), takes_requests=not replica.warming)
        began_s, outcome = self._clock(), "gone"
        try:
            waiting = iter(grammars)
            async with asyncio.timeout(how.timeout_s), asyncio.TaskGroup() as group:
                for _ in range(min(how.concurrency, len(grammars))):
                    group.create_task(self._feed(replica, waiting))
            if replica.healthy:
                outcome = "done" if replica.warming else "serving"
        except TimeoutError:
            outcome = "timeout"
        except Exception:
            log.exception("warm_up_failed", replica=replica.name)
        finally:
            seconds = self._clock() - began_s
            self._tally.ended(replica.pool, outcome, seconds)
            log.info("warmed_up", replica=replica.name, outcome=outcome, seconds=round(seconds, 3))
            if self._running.get(replica) is asyncio.current_task():
                del self._running[replica]
                replica.warm(False)

    async def _feed(self, replica: Replica, waiting: Iterator[Kept]) -> None:
        """Have a replica compile one grammar after the other; which of them fail does not matter."""
        for grammar in waiting:
            if not replica.healthy:
                return
            if not self._may_be_sent(grammar):
                continue
            outcome = await self._compile(replica, grammar)
            self._tally.grammars[replica.pool, outcome] += 1
            if outcome in _DROPPED and replica.pool in self._books:
                self._books[replica.pool].drop(grammar.key)

    async def _compile(self, replica: Replica, grammar: Kept) -> str:
        """Send one grammar; what came of it."""
        session = self._session
        if session is None:
            session = self._session = ReplicaSession("warm-up", self._reach, keep_s=_KEEP_S, total_s=None)
        pool, link = self._watched.pools.get(replica.pool), self._watched.links.get(replica)
        body = grammar.body
        if pool is not None and pool.spells_schemas:
            body = self._spelling.apply(api_of(grammar.path), body) or body
        headers = {"content-type": "application/json", "x-steplane-warm-up": "1"}
        if link is not None and link.terms.credentials:
            name, _, value = link.terms.credentials.decode("latin-1").partition(":")
            headers[name] = value.strip()
        try:
            async with session.post(replica.url + grammar.path, data=body, headers=headers) as response:
                async for _ in response.content.iter_any():
                    pass
        except ClientConnectorError:
            self._refused(replica)
            return "failed"
        except (ClientError, OSError, ValueError):
            return "broken"
        if response.status in _REFUSED:
            return "refused"
        return "ok" if response.status < 300 else "failed"

    def _may_be_sent(self, grammar: Kept) -> bool:
        """Nothing of it is quarantined."""
        return not any(signature in self._barred for signature in grammar.signatures)
