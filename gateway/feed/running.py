"""Which requests run on the engines now, by the id that the engine knows them by, and which did a moment ago.

Owns the way from an engine's request id back to the gateway's request. Knows nothing of what a request costs or where
its bytes are. Hot: the proxy adds and discards every attempt, so `add` is the dictionary's own method (0.03 µs) and
`discard` two dictionary operations (0.12 µs); everything else is asked rarely.

Ended attempts stay for some seconds, since records of their last steps arrive after their last byte. They are kept in
generations that are dropped whole, the oldest each second.

Ids that clients chose are kept apart: several requests may use the same one, at a time or one after the other, so that
one could be taken for the other. What is found under an id of requests that differ in kind is nobody's.
"""

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

from gateway.hookcost.observation import Origin

GENERATIONS = 8
"""How many generations of ended attempts are kept; `rotate`, called once a second, begins a new one."""
_MAX_ENDED_IN_GENERATION = 8192
_MAX_REMEMBERED = 4096
_MAX_SEQUENCES = 512
_RECENT = 2
"""Generations whose attempts count as having run when their replica died: the proxy may have heard of it first."""

# vLLM 0.32: n > 1 puts `INDEX_` in front (v1/engine/parallel_sampling.py), the API puts its own prefix and, for a list
# of prompts, `-INDEX` around (entrypoints/openai), and eight random digits come last (v1/engine/input_processor.py).
_VLLM = re.compile(r"(?:\d+_)?(?:chatcmpl|cmpl)-(?P<id>.+?)(?:-[0-9a-f]{8})?$")
_VLLM_INDEX = re.compile(r"[-_]\d+$")
# SGLang 0.5.23: the prompts of one body run as `ID_0`, `ID_1`, …, and samples as `ID_0_N`: by our plugin
# (replica/sglang/requestids.py), without which their ids are random and what they cost is nobody's.
_BATCH_INDEX = re.compile(r"_\d+$")


class Running(Protocol):
    """One attempt at a request on one replica. A retry, or a rerun in quarantine, is another object."""

    @property
    def origin(self) -> Origin:
        """Whom its observations are about; may be made when it is first asked for, and never changes."""

    @property
    def received_s(self) -> float:
        """When it was sent to the replica, by the gateway's monotonic clock."""

    @property
    def costly(self) -> bool:
        """`origin.costly`, without making an origin."""


class RunningRequests:
    """A registry of attempts. All methods belong to one event loop.

    add(engine_id, attempt): it is being sent, under an id that the gateway has made.
    drop(engine_id, None):   such a one has ended, and what it cost is no longer of interest: kept for no moment.
    ambiguous:               how often an id was found that requests of different kinds used.
    """

    def __init__(self) -> None:
        self._running: dict[str, Running] = {}
        self.add: Callable[[str, Running], None] = self._running.__setitem__
        self.drop: Callable[[str, None], Running | None] = self._running.pop
        self.ambiguous = 0
        self._given: dict[str, list[Running]] = {}
        """Under ids that clients chose: those that run."""
        self._ended: list[dict[str, Running]] = [{}]
        """Youngest first."""
        self._ended_now = self._ended[0]
        self._ended_given: list[dict[str, list[Running]]] = [{}]
        self._sequences: OrderedDict[str, set[str]] = OrderedDict()

    def __len__(self) -> int:
        """How many run now."""
        return len(self._running) + sum(map(len, self._given.values()))

    def add_given(self, engine_id: str, attempt: Running) -> None:
        """It is being sent, under an id that its client chose."""
        self._given.setdefault(engine_id, []).append(attempt)

    def discard(self, engine_id: str, attempt: Running, remains: Running | None = None) -> None:
        """It has ended, in whichever way; its records are still taken for some seconds.

        remains: kept instead of the attempt, if that holds more than it has to.
        """
        running = self._running
        if running.get(engine_id) is attempt:
            del running[engine_id]
        elif engine_id in self._given:
            self._discard_given(engine_id, attempt, remains or attempt)
            return
        ended = self._ended_now
        ended[engine_id] = remains or attempt
        if len(ended) > _MAX_ENDED_IN_GENERATION:
            self.rotate()

    def known(self, engine_id: str) -> bool:
        """Whether an id that a client chose is in use, or was within the last seconds."""
        return engine_id in self._given or any(engine_id in ended for ended in self._ended_given)

    def rotate(self) -> None:
        """Begin a new generation of ended attempts and forget the oldest."""
        self._ended_now = {}
        self._ended.insert(0, self._ended_now)
        del self._ended[GENERATIONS:]
        self._ended_given.insert(0, {})
        del self._ended_given[GENERATIONS:]

    def find(self, rid: str, replica: str) -> Running | None:
        """The attempt on `replica` whose sequence the engine calls `rid`; None for one that is not ours."""
        found = self._on(rid, replica)
        if found is not None:
            return found
        for owner in owners(rid):
            found = self._on(owner, replica)
            if found is not None:
                self._remember(owner, rid)
                return found
        return None

    def sequence_ids(self, engine_id: str) -> tuple[str, ...]:
        """What records have called the request's sequences, if not `engine_id`: an engine may only know these."""
        return tuple(self._sequences.get(engine_id, ()))

    def of_signature(self, signature: str) -> list[tuple[str, Running]]:
        """Engine id and attempt of all that run now with this cost signature."""
        return [(rid, attempt) for rid, attempt in self._all() if attempt.origin.signature == signature]

    def of_tenant(self, tenant: str) -> list[tuple[str, Running]]:
        """Engine id and attempt of all that run now for a tenant."""
        return [(rid, attempt) for rid, attempt in self._all() if attempt.origin.tenant == tenant]

    def on_replica(self, replica: str) -> list[Running]:
        """What runs on a replica now."""
        return [attempt for _, attempt in self._all() if attempt.origin.replica == replica]

    def ended_on(self, replica: str) -> list[Running]:
        """What has ended on a replica within the last one or two seconds."""
        attempts = [attempt for ended in self._ended[:_RECENT] for attempt in ended.values()]
        for given in self._ended_given[:_RECENT]:
            attempts += itertools.chain.from_iterable(given.values())
        return [attempt for attempt in attempts if attempt.origin.replica == replica]

    def _remember(self, engine_id: str, rid: str) -> None:
        sequences = self._sequences.get(engine_id)
        if sequences is None:
            sequences = self._sequences[engine_id] = set()
            if len(self._sequences) > _MAX_REMEMBERED:
                self._sequences.popitem(last=False)
        if len(sequences) < _MAX_SEQUENCES:
            sequences.add(rid)

    def _all(self) -> Iterator[tuple[str, Running]]:
        yield from self._running.items()
        for rid, attempts in self._given.items():
            for attempt in attempts:
                yield rid, attempt

    def _on(self, engine_id: str, replica: str) -> Running | None:
        attempt = self._running.get(engine_id)
        if attempt is not None and attempt.origin.replica == replica:
            return attempt
        for ended in self._ended:
            attempt = ended.get(engine_id)
            if attempt is not None and attempt.origin.replica == replica:
                return attempt
        return self._given_on(engine_id, replica)

    def _given_on(self, engine_id: str, replica: str) -> Running | None:
        """The latest, if all that used the id are of one kind."""
        attempts: list[Running] = list(reversed(self._given.get(engine_id, [])))
        for ended in self._ended_given:
            attempts += ended.get(engine_id, ())
        attempts = [attempt for attempt in attempts if attempt.origin.replica == replica]
        if not attempts:
            return None
        if len({_kind(attempt) for attempt in attempts}) > 1:
            self.ambiguous += 1
            return None
        return attempts[0]

    def _discard_given(self, engine_id: str, attempt: Running, remains: Running) -> None:
        attempts = self._given[engine_id]
        attempts[:] = [other for other in attempts if other is not attempt]
        if not attempts:
            del self._given[engine_id]
        ended = self._ended_given[0].setdefault(engine_id, [])
        # Those of one kind are as good as one: an id used without end takes no more than a few places.
        ended[:] = [other for other in ended if _kind(other) != _kind(attempt)]
        ended.insert(0, remains)
        if len(self._ended_given[0]) > _MAX_ENDED_IN_GENERATION:
            self.rotate()


def _kind(attempt: Running) -> tuple[str, str, str]:
    origin = attempt.origin
    return origin.signature, origin.tenant, origin.replica


def owners(rid: str) -> Iterator[str]:
    """Ids of requests that an engine may have made the sequence id `rid` of, most likely first."""
    vllm = _VLLM.match(rid)
    if vllm is not None:
        owner = vllm["id"]
        yield owner
        if _VLLM_INDEX.search(owner):
            yield _VLLM_INDEX.sub("", owner)
        # The eight digits may be the id's own: an engine can be told to add none.
        yield rid[vllm.start("id") :]
    elif _BATCH_INDEX.search(rid):
        owner = _BATCH_INDEX.sub("", rid)
        yield owner
        if _BATCH_INDEX.search(owner):
            yield _BATCH_INDEX.sub("", owner)
