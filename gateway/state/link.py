"""One connection to the shared Redis, whatever stands behind the URL. The only module that knows the `redis` package.

A link is used until something fails and then replaced by a new one, which looks up names, sentinels and the cluster's
slots anew. So nothing in here tries twice.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.state.options import Address, RedisOptions, Topology
from gateway.state.scripts import Script

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


class Link:
    """Calls scripts and hears messages. Raises `FAILURES`; after the first one it is to be closed, unless
    `is_refusal`."""

    def __init__(
        self, client: Redis | RedisCluster, pubsub: PubSub, others: Sequence[Redis | ClusterNode], timeout_s: float
    ) -> None:
        """`others`: what serves these two, to be closed with them. `timeout_s`: for each exchange."""
        self._client = client
        self._pubsub = pubsub
        self._others = others
        self._timeout_s = timeout_s

    async def call(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str | int | float]) -> Any:
        """Run a script; all keys lie in one slot."""
        try:
            return await self._say("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._say("EVAL", script.source, len(keys), *keys, *arguments)

    async def scan(self, key: bytes, cursor: int) -> tuple[int, dict[bytes, bytes]]:
        """A page of a hash, and the cursor of the next one; 0 after the last."""
        page: tuple[int, dict[bytes, bytes]] = await self._say("HSCAN", key, cursor, "COUNT", _SCAN_PAGE)
        return page

    async def changed_since(self, key: bytes, score: float, offset: int, limit: int) -> list[tuple[bytes, float]]:
        """A page of a sorted set from `score` on: members and scores."""
        options = ("WITHSCORES", "LIMIT", offset, limit)
        page: list[tuple[bytes, float]] = await self._say(
            "ZRANGEBYSCORE", key, score, "+inf", *options, withscores=True
        )
        return page

    async def subscribe(self, channel: bytes) -> None:
        """Hear messages from now on: all that are published after this returns."""
        async with asyncio.timeout(self._timeout_s):
            await self._pubsub.subscribe(channel)
            while await self._pubsub.get_message(timeout=None) is None:
                pass

    async def message(self) -> bytes:
        """The next message."""
        while True:
            message = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=None)
            if message is not None:
                data: bytes = message["data"]
                return data

    async def close(self) -> None:
        """Let go of all connections. Never raises `FAILURES`."""
        for other in (self._pubsub, self._client, *self._others):
            await _close(other, self._timeout_s)

    async def _say(self, *command: bytes | str | int | float, **options: Any) -> Any:
        async with asyncio.timeout(self._timeout_s):
            answer = await self._client.execute_command(*command, **options)
        # Where the package waits with asyncio.wait_for, Python 3.11 may lose a cancellation.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return answer


async def open_link(options: RedisOptions) -> Link:
    """A link that is made as it is used; only a cluster is asked now for its nodes. Raises `FAILURES`."""
    address = options.address
    settings = _settings(options, address)
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
            return Link(cluster, listener.pubsub(), others, options.timeout_s)
        case Topology.sentinel:
            own: dict[str, Any] = {"username": options.sentinel_username, "password": options.sentinel_password}
            # They are asked one after the other; the last one must still have its turn in time.
            own |= {"socket_timeout": options.timeout_s / (len(address.hosts) + 1)}
            own |= {"socket_connect_timeout": own["socket_timeout"]}
            sentinel = Sentinel(address.hosts, sentinel_kwargs=settings | own)  # type: ignore[no-untyped-call]
            client = sentinel.master_for(address.service, db=address.db, **settings)
            return Link(client, client.pubsub(), sentinel.sentinels, options.timeout_s)
        case Topology.unix:
            client = Redis(unix_socket_path=address.path, db=address.db, **settings)
        case Topology.single:
            host, port = address.hosts[0]
            client = Redis(host=host, port=port, db=address.db, **settings)
    return Link(client, client.pubsub(), [], options.timeout_s)


async def _close(what: PubSub | Redis | RedisCluster | ClusterNode, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await (what.disconnect() if isinstance(what, ClusterNode) else what.aclose())
    except FAILURES:
        # It is being thrown away: how it breaks doesn't matter.
        return


def is_refusal(error: BaseException) -> bool:
    """Whether Redis is there and answers, but will not do this now (it is full, say)."""
    # In a script's error the code stands in the middle. What has become a replica must be left for its new primary.
    return isinstance(error, ResponseError) and not any(code in str(error) for code in ("READONLY", "CLUSTERDOWN"))


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
