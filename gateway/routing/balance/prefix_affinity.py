"""Prompts to the replica that has computed most of their beginning: its KV cache holds that already.

Owns the memory of which replica was sent which prompt. Works on the bytes of the body as they were spelled, in blocks
of a fixed size, with neither tokenizer nor parser: what matters is that equal beginnings are recognised, and clients
spell a growing conversation the same way each time. What an engine has dropped from its cache meanwhile is not known
here; the bound on what is remembered stands for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.hookcost.features import Api
from gateway.routing.balance.affinity import BOUND, FLOOR
from gateway.routing.balance.ask import Ask
from gateway.routing.balance.ring import Ring, bounds, key_of
from gateway.routing.replica import Replica

_FIELDS = {
    Api.chat: b'"messages"',
    Api.messages: b'"messages"',
    Api.completions: b'"prompt"',
    Api.responses: b'"input"',
    Api.generate: b'"text"',
}
"""Where the prompt stands. Found by its first mention: a body that mentions it elsewhere before only misses a cache."""
_MOST_BEFORE = 1 << 20
"""Bytes of a body among which its prompt has to begin: looking through so many takes a tenth of a millisecond."""
_HOLDERS = 4
"""Replicas remembered for one block: the latest."""


@dataclass(frozen=True, slots=True)
class PrefixAffinity:
    """The longest known beginning decides, within the bounds of load.

    threshold:   share of the prompt that must be known on a replica for it to count; one with less goes where its
                 first unknown block belongs by hash, which is the same replica for every gateway.
    block_bytes: size of a block; a few dozen tokens. most_bytes: of a prompt that are looked at.
    blocks:      blocks remembered at most, 200 bytes each, the least recently used out first.
    bound, floor: see `ring.bounds`.
    """

    threshold: float = 0.3
    block_bytes: int = 128
    most_bytes: int = 64 * 1024
    blocks: int = 65_536
    bound: float = BOUND
    floor: int = FLOOR

    def build(self) -> "PrefixMemory":
        """A memory with nothing in it."""
        return PrefixMemory(self)


class PrefixMemory:
    """Which replicas were sent which prompts. A `Scorer` that is told where requests went."""

    __slots__ = ("_chain", "_chained", "_half", "_old", "_plan", "_ring", "_young")

    def __init__(self, plan: PrefixAffinity) -> None:
        self._plan = plan
        self._half = plan.blocks // 2
        self._ring = Ring()
        self._young: dict[int, tuple[Replica, ...]] = {}
        self._old: dict[int, tuple[Replica, ...]] = {}
        """Two generations, as in hookcost's `TextCache`: what is used moves into the young one."""
        self._chained: Ask | None = None
        self._chain: list[int] = []
        """Of the request that was scored last: it is learned next."""

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def score(self, ask: Ask, members: tuple[Replica, ...], candidates: Sequence[Replica], /) -> list[float]:
        """See `Scorer`."""
        chain = self._chain_of(ask)
        if not chain:
            return [0.0] * len(candidates)
        depths, known = self._depths(chain)
        takes = bounds(candidates, self._plan.bound, self._plan.floor)
        shares = [depths.get(each, 0) / len(chain) if takes(each) else 0.0 for each in candidates]
        if max(shares) >= self._plan.threshold:
            return shares
        self._ring.follow(members)
        home = self._ring.home(self._place_of(ask, min(known + 1, len(chain))), takes)
        return [1.0 if each is home else 0.0 for each in candidates]

    def learn(self, ask: Ask, replica: Replica) -> None:
        """The replica will have the whole prompt in its cache."""
        for block in self._chain_of(ask):
            holders = self._holders(block)
            if holders is None:
                self._put(block, (replica,))
            elif replica not in holders:
                self._put(block, (replica, *holders[: _HOLDERS - 1]))
            elif block not in self._young:
                self._put(block, holders)
        self._chained, self._chain = None, []  # a body may be large

    def _place_of(self, ask: Ask, blocks: int) -> int:
        """Where so many blocks of the beginning belong; the same for every gateway."""
        start = _start_of(ask)
        return key_of(_salt_of(ask) + ask.body[start : start + blocks * self._plan.block_bytes])

    def _depths(self, chain: list[int]) -> tuple[dict[Replica, int], int]:
        """How many blocks of the beginning each replica has, and how many any of them has."""
        depths: dict[Replica, int] = {}
        for depth, block in enumerate(chain):
            holders = self._holders(block)
            if holders is None:
                return depths, depth
            for replica in holders:
                if depths.get(replica, 0) == depth:
                    depths[replica] = depth + 1
        return depths, len(chain)

    def _holders(self, block: int) -> tuple[Replica, ...] | None:
        holders = self._young.get(block)
        return self._old.get(block) if holders is None else holders

    def _put(self, block: int, holders: tuple[Replica, ...]) -> None:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[block] = holders

    def _chain_of(self, ask: Ask) -> list[int]:
        if ask is not self._chained:
            self._chain = list(_chained(ask, self._plan.block_bytes, self._plan.most_bytes))
            self._chained = ask
        return self._chain


def _chained(ask: Ask, block_bytes: int, most_bytes: int) -> Iterator[int]:
    """A hash for each whole block of the prompt and everything before it; of this process alone."""
    start = _start_of(ask)
    if start < 0:
        return
    body = ask.body
    end = min(len(body), start + most_bytes)
    above = hash(_salt_of(ask))
    for at in range(start, end - block_bytes + 1, block_bytes):
        above = hash((above, body[at : at + block_bytes]))
        yield above


def _start_of(ask: Ask) -> int:
    """Where the prompt begins in the body, -1 where there is none."""
    field = _FIELDS.get(ask.classification.features.api)
    return -1 if field is None else ask.body.find(field, 0, _MOST_BEFORE)


def _salt_of(ask: Ask) -> bytes:
    """What keeps apart what has a cache of its own: the model, or the adapter."""
    return (ask.classification.features.model or "").encode("utf-8", "surrogatepass")
