"""What a supervisor and a worker tell each other over their channel. Data alone."""

from typing import Any

import msgspec

# Beside a type, `tag` says on the wire what it is; a supervisor may be older than its workers and the other way round.
PROTOCOL = 2
"""Of this file and of what state/frames.py says: whoever speaks another must not work together."""

Slots = list[int]


class Hello(msgspec.Struct, tag=True, frozen=True):
    """To a worker, first of all: who it is, and its configuration.

    slot:     its place, from 0; `sockets` has for each place the listener's number in the configuration and a
              descriptor that the worker has inherited.
    document: the configuration as plain data. file, files, origins: see `Document`. folder: where files are looked for.
    admin, books: paths of Unix sockets, see `Seat`.
    shares:   see `Shares`.
    """

    protocol: int
    slot: int
    sockets: dict[int, list[tuple[int, int]]]
    document: Any
    file: str
    files: list[str]
    origins: list[tuple[list[str | int], str]]
    folder: str
    admin: str
    books: str
    shares: dict[str, float]


class Accept(msgspec.Struct, tag=True, frozen=True):
    """To a worker: take clients from the sockets of these places, and from no others."""

    slots: Slots


class Drain(msgspec.Struct, tag=True, frozen=True):
    """To a worker: end in good order. `handed_over`: others take the clients that come meanwhile."""

    handed_over: bool


class Shares(msgspec.Struct, tag=True, frozen=True):
    """To a worker: the part of each pool's step budget and caps that is its own, by pool. Counted by `number`.

    alone: pools in which it, and no other worker, may run what costs more than its part.
    """

    number: int
    parts: dict[str, float]
    alone: list[str]


class Reload(msgspec.Struct, tag=True, frozen=True):
    """To a worker: read the configuration again and take over what can be changed while it runs."""


class AskSamples(msgspec.Struct, tag=True, frozen=True):
    """To a worker: what are your metrics?"""

    number: int


class Ready(msgspec.Struct, tag=True, frozen=True):
    """Of a worker: it runs, and knows how its replicas are."""


class Accepting(msgspec.Struct, tag=True, frozen=True):
    """Of a worker: it does as `Accept` said."""

    slots: Slots


class Demand(msgspec.Struct, frozen=True):
    """Of one pool in one worker. part: in force there. held: of the whole budget, booked now. waiting: requests.

    wants_alone: one of them costs more than the part. has_alone: it may run one, or one runs.
    """

    part: float
    held: float
    waiting: int
    wants_alone: bool
    has_alone: bool


class Demands(msgspec.Struct, tag=True, frozen=True):
    """Of a worker: what it holds and wants, by pool; told when it has changed. heard: number of the last `Shares`."""

    heard: int
    pools: dict[str, Demand]


class Family(msgspec.Struct, array_like=True, frozen=True):
    """One metric: name, text, type, and its samples, each with name, labels and value.

    exemplars: of some of the samples, by their place: labels, value and time of day.
    """

    name: str
    documentation: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]
    exemplars: dict[int, tuple[dict[str, str], float, float]] = {}


class Samples(msgspec.Struct, tag=True, frozen=True):
    """Of a worker: its metrics. `number`: of the question, 0 for the last ones before its end."""

    number: int
    families: list[Family]


class Reloaded(msgspec.Struct, tag=True, frozen=True):
    """Of a worker: it has taken over another configuration, for whatever reason it read it."""


class Alive(msgspec.Struct, tag=True, frozen=True):
    """Of a worker, once a second: its loop turns."""


ToWorker = Hello | Accept | Drain | Shares | Reload | AskSamples
OfWorker = Ready | Accepting | Demands | Samples | Reloaded | Alive
