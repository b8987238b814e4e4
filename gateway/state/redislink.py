"""One connection to the shared Redis, whatever stands behind the URL. The only module that knows the `redis` package.

A link is used until something fails and then replaced by a new one, which looks up names, sentinels and the cluster's
slots anew. So nothing in here tries twice. What is said is in scripts.py, under which names in keys.py.
"""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from gateway.state import scripts
from gateway.state.keys import Keys
from gateway.state.ledger import Change
from gateway.state.link import Message, Totals
from gateway.state.options import Address, RedisOptions, Topology
from gateway.state.scripts import Script
from gateway.state.stored import Stored, to_bytes, to_name, unpack
from gateway.state.tally import Batch

try:
    from redis.asyncio import Redis, RedisCluster, Sentinel
    from redis.asyncio.client import PubSub
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import NoScriptError, RedisClusterException, RedisError, ResponseError
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "state.redis needs the package redis, which is not installed here; install it: pip install 'steplane[redis]'",
        name="redis",
    ) from error

FAILURES = (RedisError, RedisClusterException, OSError, TimeoutError)
"""What a link raises when Redis is away, slow or unwilling."""

_SCAN_PAGE = 500
_BATCH_NUMBER_MS = 3_600_000
"""How long Redis knows that a batch was delivered: far longer than anybody tries to deliver it again."""

_log = structlog.get_logger("steplane.state")


class RedisLink:
    """A `Link` to Redis. Raises `FAILURES`."""

    failures = FAILURES

    def __init__(
        self,
        client: Redis | RedisCluster,
        pubsub: PubSub,
        others: Sequence[Redis | ClusterNode],
        keys: Keys,
        timeout_s: float,
    ) -> None:
        """`others`: what serves these two, to be closed with them. `timeout_s`: for each exchange."""
        self._client = client
        self._pubsub = pubsub
        self._others = others
        self._keys = keys
        self._timeout_s = timeout_s

    def is_refusal(self, error: BaseException) -> bool:
        """Whether Redis is there and answers, but will not do this now (it is full, say)."""
        # In a script's error the code stands in the middle. What has become a replica must be left for its new primary.
        return isinstance(error, ResponseError) and not any(code in str(error) for code in ("READONLY", "CLUSTERDOWN"))

    async def subscribe(self) -> None:
        """Hear messages from now on: all that are published after this returns."""
        async with asyncio.timeout(self._timeout_s):
            await self._pubsub.subscribe(self._keys.channel)
            while await self._pubsub.get_message(timeout=None) is None:
                pass

    async def message(self) -> Message:
        """The next message."""
        while True:
            message = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=None)
            if message is not None:
                return _read_message(message["data"])

    async def introduce(self) -> None:
        """Asked for no time at all, nothing is leased: a server that is new starts its time of granting none."""
        await self._call(scripts.LEASE, [self._keys.instance, self._keys.lease("")], ["", 0])

    async def look(self, kind: str) -> tuple[float, int]:
        """Redis' wall clock in ms, and the number of changes of a kind so far."""
        now_ms, number = await self._call(scripts.LOOK, [self._keys.records(kind)], [])
        return float(now_ms), int(number)

    async def records(self, kind: str, cursor: int) -> tuple[int, list[tuple[str, Stored]]]:
        """A page of the records of a kind."""
        key = self._keys.records(kind)
        page: dict[bytes, bytes]
        cursor, page = await self._say("HSCAN", key, cursor, "COUNT", _SCAN_PAGE)
        records: list[tuple[str, Stored]] = []
        for name, packed in page.items():
            if not name.startswith(b"="):
                continue
            try:
                records.append((to_name(name[1:]), unpack(packed)))
            except ValueError as error:
                _log.warning("passed over a record of shared state", kind=kind, error=str(error))
        return cursor, records

    async def change(self, kind: str, changes: Sequence[Change]) -> list[tuple[bool, Stored | None]]:
        """Apply changes of different keys, as one indivisible act."""
        arguments: list[bytes | str | int | float] = [self._keys.channel, to_bytes(kind)]
        for change in changes:
            arguments += [change.operation, to_bytes(change.key), change.token, change.ground, change.version]
            arguments += [_milliseconds(change.ttl_s), change.value, change.fence, change.fence_token]
        answers = await self._call(scripts.CHANGE, [self._keys.records(kind)], arguments)
        return [
            (bool(clean), unpack(packed) if packed else None)
            for clean, packed in zip(answers[::2], answers[1::2], strict=True)
        ]

    async def prune(self, kind: str, keys: Sequence[str]) -> None:
        """Remove those of these records whose time is over."""
        await self._call(scripts.PRUNE, [self._keys.records(kind)], [to_bytes(key) for key in keys])

    async def count(self, kind: str, origin: str, batch: Batch, ttl_s: float) -> Totals:
        """Add a batch, unless `origin` has delivered it before; the totals of its keys."""
        keys = [self._keys.counters(kind), self._keys.batch(kind, origin)]
        arguments: list[bytes | str | int | float] = [batch.number, _milliseconds(ttl_s), _BATCH_NUMBER_MS]
        for key, amounts in batch.amounts.items():
            keys.append(self._keys.counter(kind, key))
            arguments += [to_bytes(key), len(amounts)]
            for name, amount in amounts.items():
                arguments += [to_bytes(name), repr(amount)]
        answers = await self._call(scripts.COUNT, keys, arguments)
        return {key: _amounts(answer) for key, answer in zip(batch.amounts, answers, strict=True)}

    async def changed_since(self, kind: str, at_ms: float, offset: int, limit: int) -> list[tuple[str, float]]:
        """A page of the keys of counters that have changed since."""
        key = self._keys.counters(kind)
        options = ("WITHSCORES", "LIMIT", offset, limit)
        page: list[tuple[bytes, float]] = await self._say(
            "ZRANGEBYSCORE", key, at_ms, "+inf", *options, withscores=True
        )
        return [(to_name(name), score) for name, score in page]

    async def totals(self, kind: str, keys: Sequence[str]) -> Totals:
        """The counters of some keys."""
        answers = await self._call(scripts.TOTALS, [self._keys.counter(kind, key) for key in keys], [])
        return {key: _amounts(answer) for key, answer in zip(keys, answers, strict=True)}

    async def lease(self, key: str, holder: str, ttl_s: float) -> bool:
        """Whether a lease is the holder's from now on."""
        keys = [self._keys.instance, self._keys.lease(key)]
        return bool(await self._call(scripts.LEASE, keys, [holder, _milliseconds(ttl_s)]))

    async def release(self, key: str, holder: str) -> None:
        """Give a lease back, if it is the holder's."""
        await self._call(scripts.RELEASE, [self._keys.lease(key)], [holder])

    async def close(self) -> None:
        """Let go of all connections. Never raises `FAILURES`."""
        for other in (self._pubsub, self._client, *self._others):
            await _close(other, self._timeout_s)

    async def _call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str | int | float]) -> Any:
        """Run a script; all keys lie in one slot."""
        try:
            return await self._say("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._say("EVAL", script.source, len(keys), *keys, *arguments)

    async def _say(self, *command: bytes | str | int | float, **options: Any) -> Any:
        async with asyncio.timeout(self._timeout_s):
            answer = await self._client.execute_command(*command, **options)
        # Where the package waits with asyncio.wait_for, Python 3.11 may lose a cancellation.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return answer


async def open_link(options: RedisOptions) -> RedisLink:
    """A link that is made as it is used; only a cluster is asked now for its nodes. Raises `FAILURES`."""
    address = options.address
    settings = _settings(options, address)
    keys = Keys(options.prefix)
    client: Redis
    match address.topology:
        case Topology.cluster:
            nodes = [ClusterNode(host, port) for host, port in address.hosts]
            cluster = RedisCluster(startup_nodes=nodes, dynamic_startup_nodes=False, **settings)
            try:
                async with asyncio.timeout(options.timeout_s):
                    await cluster.initialize()
            except BaseException:
                await _close(cluster, options.timeout_s)
                for unused in nodes:
                    await _close(unused, options.timeout_s)
                raise
            # Any node passes on what is published at any other.
            node = cluster.get_random_node()
            listener = Redis(host=node.host, port=int(node.port), **settings)
            # The package does not always close the nodes that it was given.
            others: list[Redis | ClusterNode] = [listener, *nodes]
            return RedisLink(cluster, listener.pubsub(), others, keys, options.timeout_s)
        case Topology.sentinel:
            own: dict[str, Any] = {"username": options.sentinel_username, "password": options.sentinel_password}
            # They are asked one after the other; the last one must still have its turn in time.
            own |= {"socket_timeout": options.timeout_s / (len(address.hosts) + 1)}
            own |= {"socket_connect_timeout": own["socket_timeout"]}
            sentinel = Sentinel(address.hosts, sentinel_kwargs=settings | own)  # type: ignore[no-untyped-call]
            client = sentinel.master_for(address.service, db=address.db, **settings)
            return RedisLink(client, client.pubsub(), sentinel.sentinels, keys, options.timeout_s)
        case Topology.unix:
            client = Redis(unix_socket_path=address.path, db=address.db, **settings)
        case Topology.single:
            host, port = address.hosts[0]
            client = Redis(host=host, port=port, db=address.db, **settings)
    return RedisLink(client, client.pubsub(), [], keys, options.timeout_s)


async def _close(what: PubSub | Redis | RedisCluster | ClusterNode, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await (what.disconnect() if isinstance(what, ClusterNode) else what.aclose())
    except FAILURES:
        # It is being thrown away: how it breaks doesn't matter.
        return


def _settings(options: RedisOptions, address: Address) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "username": options.username if options.username is not None else address.username,
        "password": _password(options.password_file) or options.password or address.password,
        # Each exchange has a deadline as a whole; who listens has none.
        "socket_timeout": None,
        # Shorter than the whole: when both end at once, the package leaves a connection open.
        "socket_connect_timeout": options.timeout_s / 2,
        "socket_keepalive": True,
        # The older protocol: the same answers from every version of servers and package.
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
    }
    if address.encrypted:
        settings |= {
            "ssl": True,
            "ssl_ca_certs": _text(options.ca_file),
            "ssl_certfile": _text(options.cert_file),
            "ssl_keyfile": _text(options.key_file),
            "ssl_check_hostname": True,
        }
    return settings


def _password(file: Path | None) -> str | None:
    return file.read_text().strip() if file is not None else None


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


def _read_message(data: bytes) -> Message:
    head, _, rest = data.partition(b"\n")
    kind_length, key_length, number = map(int, head.split(b" "))
    key_end = kind_length + key_length
    return Message(to_name(rest[:kind_length]), to_name(rest[kind_length:key_end]), number, rest[key_end:])


def _milliseconds(ttl_s: float) -> int:
    """As the scripts take it: 0 for ever."""
    return 0 if math.isinf(ttl_s) else max(1, round(ttl_s * 1000))


def _amounts(answer: Sequence[bytes]) -> dict[str, float]:
    """Names and values in turn, as a script answers them."""
    return {to_name(name): float(value) for name, value in zip(answer[::2], answer[1::2], strict=True)}
