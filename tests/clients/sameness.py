"""When the gateway was not noticed: the client got what the engine sent, and the engine what the client sent.

Two comparisons. In one exchange seen on both sides of the gateway every byte must be equal, but for the request id that
goes into the body and the headers that the gateway adds. Two exchanges, through the gateway and direct, must be equal
apart from ids and times, down to the spelling of JSON and the cut of server-sent events.
"""

import re
from dataclasses import dataclass, replace

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
# What the gateway puts behind the fields of a body.
_SPLICED = re.compile(rb',?"(?:rid|request_id)":"[^"]*"(\s*\}\s*)\Z')
# SGLang quotes the body that lacked a field, and with it the request id that the gateway put there.
_QUOTED_RID = re.compile(rb"(?:, )?'(?:rid|request_id)': '[^']*'")

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
            assert_untouched(exchange, served)
        direct = record(case, served.replicas[_replica_of(through[0])])
        ours = [essence(exchange, interleaved=case.interleaved) for exchange in through]
        engines = [essence(exchange, interleaved=case.interleaved) for exchange in direct]
        if ours == engines or attempt == attempts:
            assert ours == engines
            return


def assert_untouched(exchange: Exchange, served: Served) -> None:
    """What the client saw of `exchange` is what passed the tap of its replica, and the gateway says who it was."""
    missing = [name for name in GATEWAY_HEADERS if not exchange.header(name)]
    assert not missing, f"{exchange.target} came without {missing}: {exchange.body[:500]!r}"
    seen = _whole(exchange)
    passed = [_whole(other) for other in served.taps[_replica_of(exchange)].exchanges() if other.target == seen.target]
    assert seen in passed, f"the client saw\n{seen}\nbehind the gateway passed\n" + "\n".join(map(repr, passed[-3:]))


def _whole(exchange: Exchange) -> Exchange:
    """All of an exchange but for what the gateway may change: its headers, the order of headers, the id in the body."""
    return replace(
        exchange,
        request_body=_SPLICED.sub(rb"\1", exchange.request_body),
        headers=_end_to_end(exchange),
    )


def essence(exchange: Exchange, *, interleaved: bool = False) -> Essence:
    """`exchange` without ids, times and what the gateway adds.

    interleaved: the events of several sequences come in no set order; compare them as a set with repetitions.
    """
    events = tuple(_settled(event) for event in (exchange.events if exchange.is_stream else (exchange.body,)))
    return Essence(
        target=exchange.target,
        status=exchange.status,
        headers=tuple(header for header in _end_to_end(exchange) if header[0] not in _MAY_DIFFER),
        events=tuple(sorted(events)) if interleaved else events,
    )


def _replica_of(exchange: Exchange) -> str:
    return exchange.header("x-steplane-replica") or ""


def _end_to_end(exchange: Exchange) -> tuple[tuple[str, str], ...]:
    """The headers of the engine, sorted: without those of the connection and those of the gateway."""
    added = _HOP_BY_HOP.union(GATEWAY_HEADERS)
    return tuple(sorted((name, value) for name, value in exchange.headers if name not in added))


def _settled(text: bytes) -> bytes:
    text = _QUOTED_RID.sub(b"", text)
    for pattern in _VOLATILE:
        text = pattern.sub(rb'\1"*"', text)
    return text
