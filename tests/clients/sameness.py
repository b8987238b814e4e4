"""When two recordings are the same answer: byte for byte, apart from ids and times.

Owns the list of what may differ. Everything outside it, down to the spelling of JSON and the cut of server-sent events,
must be equal.
"""

import re
from dataclasses import dataclass

from tests.clients.case import Case, record
from tests.clients.exchange import Exchange
from tests.clients.served import Served

# Each pattern's first group is kept, the rest of the match becomes "*".
_VOLATILE = tuple(
    re.compile(pattern)
    for pattern in (
        rb'("(?:id|item_id|request_id)":)"[^"]*"',
        rb'("created(?:_at)?":)\d+(?:\.\d+)?',
        # SGLang's /generate tells when everything happened and how long it took.
        rb'("(?:\w+_time|\w+_ts|\w+_latency|\w+_wait|decode_throughput)":)-?[\d.]+(?:[eE][-+]?\d+)?',
        # xgrammar writes the time of day into its error messages.
        rb"(compile \w+ grammar: )\[\d\d:\d\d:\d\d\]",
    )
)
# SGLang quotes the body that lacked a field, and with it the request id that the gateway put there.
_QUOTED_RID = re.compile(rb"'rid': '[^']*', ")

_MAY_DIFFER = frozenset({"date", "content-length"})  # the length changes with the length of ids
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding"})
GATEWAY_HEADERS = ("x-steplane-pool", "x-steplane-route", "x-steplane-replica", "x-request-id")


@dataclass(frozen=True, slots=True)
class Essence:
    """What must be equal in two exchanges. Server-sent events in `events`, any other body as its one element."""

    target: str
    status: int
    headers: tuple[tuple[str, str], ...]
    events: tuple[bytes, ...]


def assert_same_answers(case: Case, served: Served, *, attempts: int = 1) -> None:
    """Run `case` through the gateway and direct, at the replica that the gateway chose, and compare.

    attempts: how often both may be run until they are equal. An engine that is late joins two tokens in one event, so
    where the cuts fall is partly chance; more than that is not forgiven, for every attempt compares everything.
    """
    for attempt in range(1, attempts + 1):
        through = record(case, served.url)
        for exchange in through:
            missing = [name for name in GATEWAY_HEADERS if not exchange.header(name)]
            assert not missing, f"{exchange.target} came without {missing}: {exchange.body[:500]!r}"
        direct = record(case, served.replicas[through[0].header("x-steplane-replica") or ""])
        ours = [essence(exchange, interleaved=case.interleaved) for exchange in through]
        engines = [essence(exchange, interleaved=case.interleaved) for exchange in direct]
        if ours == engines or attempt == attempts:
            assert ours == engines
            return


def essence(exchange: Exchange, *, interleaved: bool = False) -> Essence:
    """`exchange` without ids, times and what the gateway adds.

    interleaved: the events of several sequences come in no set order; compare them as a set with repetitions.
    """
    events = tuple(_settled(event) for event in (exchange.events if exchange.is_stream else (exchange.body,)))
    return Essence(
        target=exchange.target,
        status=exchange.status,
        headers=tuple(
            sorted(
                (name, value)
                for name, value in exchange.headers
                if name not in _MAY_DIFFER and name not in _HOP_BY_HOP and name not in GATEWAY_HEADERS
            )
        ),
        events=tuple(sorted(events)) if interleaved else events,
    )


def _settled(text: bytes) -> bytes:
    text = _QUOTED_RID.sub(b"", text)
    for pattern in _VOLATILE:
        text = pattern.sub(rb'\1"*"', text)
    return text
