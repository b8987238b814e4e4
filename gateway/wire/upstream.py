"""One upstream server and its pool of connections: takes, makes, releases and expires them. Reads no response.

Three things change: the connections that are open, those of them that are idle, and the exchanges that wait. While
nobody waits, and nothing but the idle time limits a connection, giving one back is putting it on the idle ones:
`_plain` says so, and is decided when one of these things changes, not for each request. All that needs a look now and
then is done by the server's sweep: a few comparisons for a server with nothing to do.
"""

from __future__ import annotations

import asyncio
import errno
import math
from typing import TYPE_CHECKING, Final

from gateway.wire.connection import UpstreamConnection
from gateway.wire.dialer import Dialer
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.idlelimit import IdleLimit
from gateway.wire.pending import Pending
from gateway.wire.poolpolicy import PoolPolicy
from gateway.wire.responsehead import ResponseHeads

if TYPE_CHECKING:
    from gateway.wire.address import Address, Resolver
    from gateway.wire.carrier import Carrier
    from gateway.wire.clienttls import ClientTls
    from gateway.wire.exchange import Exchange
    from gateway.wire.limits import Timeouts

_DEFAULT: Final = PoolPolicy()
_WARM_AGAIN_S: Final = 1.0
"""After a connection that was to be kept ready could not be opened; twice as long each time it fails again."""
_WARM_AGAIN_AT_MOST_S: Final = 30.0
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))
"""What an attempt to connect says that got no file, no memory or no port here: nothing about who was to be reached."""


class _Made:
    """What is known of an open connection: to where, since when, and how many exchanges it served (if that counts)."""

    __slots__ = ("address", "at", "served")

    def __init__(self, address: Address | None, at: float) -> None:
        self.address = address
        self.at = at
        self.served = 0


class Upstream:
    """One server and its connections, the idle ones with the most recently used on top.

    name:             what failures and people call it.
    connects:         connections that were opened, from the start; so are the next six.
    connect_failures: attempts that were refused, not routed, not trusted or not resolved.
    connect_timeouts: attempts that took too long.
    reused:           exchanges that got a kept connection.
    turned_away:      exchanges that got none because all that may be open were in use.
    stale:            kept connections that the server closed just as they were reused.
    closed_idle:      kept connections that the server closed.
    last_read_at:     the loop's time when a response last made progress.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeouts: Timeouts,
        *,
        path: str = "",
        tls: ClientTls | None = None,
        name: str | None = None,
        policy: PoolPolicy = _DEFAULT,
        resolver: Resolver | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        """path: of a Unix socket, used instead of host and port. resolver: for a host that is a name.

        carrier: takes the requests there, instead of sockets of ours.
        """
        self.host = host
        self.port = port
        self.name = name or path or f"{host}:{port}"
        self.heads = ResponseHeads()
        self._timeouts = timeouts
        self._policy = policy
        self._carrier = carrier
        self._dialer = Dialer(
            host,
            port,
            path=path,
            tls=tls,
            resolver=resolver,
            dns_refresh_s=policy.dns_refresh_s,
            dead_after_s=policy.dead_after_s,
            on_move=self._moved,
        )
        self._loop = asyncio.get_running_loop()
        self._limit = IdleLimit(timeouts.upstream_idle_s if policy.idle_s is None else policy.idle_s)
        self._idle_s: float = self._limit.seconds
        self._told_s = math.inf
        self._idle: dict[UpstreamConnection, float] = {}
        self._open: dict[UpstreamConnection, _Made] = {}
        self._retired: set[UpstreamConnection] = set()
        """Open ones that serve no further exchange."""
        self._dialling: set[Pending] = set()
        self._waiting: dict[Pending, None] = {}
        self._warm_at = -math.inf
        self._warm_pause_s = _WARM_AGAIN_S
        self._closed = False
        self._limited = bool(policy.max_idle or policy.max_requests_per_connection or policy.max_connection_age_s)
        self._plain: bool = not self._limited
        self.connects = 0
        self.connect_failures = 0
        self.connect_timeouts = 0
        self.reused: int = 0
        self.turned_away = 0
        self.stale = 0
        self.closed_idle = 0
        self.last_read_at = -math.inf

    # --- what people are shown

    @property
    def idle(self) -> int:
        """Pooled connections without an exchange."""
        return len(self._idle)

    @property
    def open(self) -> int:
        """Connections that are open."""
        return len(self._open)

    @property
    def closed(self) -> bool:
        """Nobody is to use it any more."""
        return self._closed

    @property
    def waiting(self) -> int:
        """Exchanges that wait for a connection to get free."""
        return len(self._waiting)

    @property
    def idle_s(self) -> float:
        """Seconds after which an unused connection is closed: configured, told by the server, or learned from it."""
        return self._idle_s

    @property
    def addresses(self) -> tuple[str, ...]:
        """What the host's name stands for now; empty for an address, a Unix socket, or a name not looked up yet."""
        name = self._dialer.name
        return () if name is None else tuple([str(address) for address in name.addresses])

    @property
    def lookups(self) -> int:
        """How often the name was looked up."""
        return 0 if self._dialer.name is None else self._dialer.name.lookups

    @property
    def failed_lookups(self) -> int:
        """How often that failed."""
        return 0 if self._dialer.name is None else self._dialer.name.failures

    # --- for exchanges and connections

    def take(self, now: float) -> UpstreamConnection | None:
        """An idle connection that is not past its time, or None. `now`: the loop's time."""
        while self._idle:
            connection, since = self._idle.popitem()
            if now - since < self._idle_s and not connection.is_closing():
                self.reused += 1
                return connection
            connection.drop()
        return None

    def release(self, connection: UpstreamConnection, now: float) -> None:
        """A connection is done with its exchange and may serve another."""
        if self._plain:
            self._idle[connection] = now
        else:
            self._settle(connection, now)

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection is closed."""
        since = self._idle.pop(connection, -1.0)
        self._open.pop(connection, None)
        if connection in self._retired:
            self._retired.discard(connection)
            self._derive()
        elif since >= 0.0:
            self.closed_idle += 1
            now = self._loop.time()
            self._limit.closed(now - since, now)
            self._idle_s = self._limit.seconds
        self._admit()

    def went_stale(self) -> None:
        """A kept connection was closed just as it was reused."""
        self.stale += 1
        self._limit.stale(self._loop.time())
        self._idle_s = self._limit.seconds

    def connect(self, exchange: Exchange) -> Pending:
        """Get a connection for `exchange`, which is told of the outcome unless it cancels what is returned.

        One is opened, or where no further one may be open, waited for: each in its turn, `wait_s` at most.
        """
        pending = Pending(self, exchange, self._loop.time() + self._policy.wait_s)
        if self._may_open():
            self._dial(pending)
        elif len(self._waiting) < self._policy.max_waiting and not self._closed:
            self._waiting[pending] = None
            self._derive()
        else:
            # Not within this call: the exchange has yet to note that it is connecting.
            pending.task = self._loop.create_task(self._turn_away(pending))
        return pending

    def leave(self, pending: Pending) -> None:
        """An exchange waits no more."""
        self._waiting.pop(pending, None)
        self._derive()

    # --- for the server and its owner

    def sweep(self, now: float) -> None:
        """Close connections that idled too long, end waits that took too long, and keep ready what is to be ready."""
        if self._idle:
            self._expire(now)
        if self._waiting:
            self._end_waits(now)
        if self.heads.keep_alive_s != self._told_s:
            self._told_s = self.heads.keep_alive_s
            self._limit.told(self._told_s)
        self._limit.forget(now)
        self._idle_s = self._limit.seconds
        if self._closed:
            return
        name = self._dialer.name
        if name is not None and self._open and now >= name.due_at:
            name.refresh()
        if self._policy.min_idle and now >= self._warm_at:
            self._warm()

    def close(self) -> None:
        """Close idle connections and serve nobody who waits; those in use close when their exchange is done."""
        self._closed = True
        self._derive()
        self._dialer.close()
        self.drop_idle()
        for pending in [pending for pending in self._dialling if pending.exchange is None]:
            pending.cancel()
        while self._waiting:
            waiting = next(iter(self._waiting))
            self.leave(waiting)
            self._tell_full(waiting, f"{self.name} gets no more requests")

    def drop_idle(self) -> None:
        """Close the pooled connections: what has happened to one of them may have happened to all."""
        idle, self._idle = self._idle, {}
        for connection in idle:
            connection.drop()

    # --- inside: connections

    def _derive(self) -> None:
        self._plain = not (self._limited or self._closed or self._retired or self._waiting)

    def _settle(self, connection: UpstreamConnection, now: float) -> None:
        """A connection is free, and there is more to look at than putting it on the idle ones."""
        if self._is_spent(connection, now):
            connection.drop()
        else:
            self._offer(connection, now)

    def _offer(self, connection: UpstreamConnection, now: float) -> None:
        """Give a free connection to whoever has waited longest; keep it where nobody does."""
        if self._waiting:
            pending = next(iter(self._waiting))
            self.leave(pending)
            self.reused += 1
            assert pending.exchange is not None
            pending.exchange.attach(connection)
        elif 0 < self._policy.max_idle <= len(self._idle):
            connection.drop()
        else:
            self._idle[connection] = now

    def _is_spent(self, connection: UpstreamConnection, now: float) -> bool:
        """Whether it may serve no further exchange; counts the one it has served."""
        if self._closed or connection in self._retired:
            return True
        policy = self._policy
        made = self._open[connection]
        made.served += 1
        return (0 < policy.max_requests_per_connection <= made.served) or (
            0.0 < policy.max_connection_age_s <= now - made.at
        )

    def _expire(self, now: float) -> None:
        """The oldest are at the bottom."""
        expired: list[UpstreamConnection] = []
        for connection, since in self._idle.items():
            if now - since < self._idle_s:
                break
            expired.append(connection)
        for connection in expired:
            del self._idle[connection]
            connection.drop()

    def _moved(self) -> None:
        """The name has other addresses: connections to those that are gone serve nobody any more."""
        name = self._dialer.name
        assert name is not None
        for connection, made in self._open.items():
            if made.address not in name.addresses:
                self._retired.add(connection)
        self._derive()
        for connection in [connection for connection in self._idle if connection in self._retired]:
            del self._idle[connection]
            connection.drop()

    # --- inside: opening them, and waiting

    def _may_open(self) -> bool:
        limit = self._policy.max_connections
        return limit == 0 or len(self._open) + len(self._dialling) < limit

    def _dial(self, pending: Pending) -> None:
        self._dialling.add(pending)
        task = self._loop.create_task(self._open_one(pending))
        pending.task = task
        task.add_done_callback(lambda _: self._dialled(pending))

    def _dialled(self, pending: Pending) -> None:
        """However it ended; also if it was cancelled before it began."""
        self._dialling.discard(pending)
        self._admit()

    def _admit(self) -> None:
        """Open connections for those who wait, as far as there is room now."""
        while self._waiting and self._may_open():
            pending = next(iter(self._waiting))
            self.leave(pending)
            self._dial(pending)

    def _end_waits(self, now: float) -> None:
        """All wait equally long, so those who came first are done first."""
        while self._waiting:
            pending = next(iter(self._waiting))
            if now < pending.deadline:
                return
            self.leave(pending)  # one after the other: who is told may end the wait of another
            self._tell_full(pending, f"no connection to {self.name} got free within {self._policy.wait_s:g} s")

    def _tell_full(self, pending: Pending, detail: str) -> None:
        self.turned_away += 1
        assert pending.exchange is not None
        pending.exchange.connect_failed(Failure(FailureKind.pool_full, detail))

    async def _turn_away(self, pending: Pending) -> None:
        policy = self._policy
        detail = (
            f"all {policy.max_connections} connections that {self.name} may have are in use, "
            f"and {policy.max_waiting} requests wait for one"
        )
        self._tell_full(pending, detail)

    def _warm(self) -> None:
        """Open what is missing of the connections that are kept ready."""
        ready = len(self._idle) + len([pending for pending in self._dialling if pending.exchange is None])
        while ready < self._policy.min_idle and self._may_open():
            self._dial(Pending(self, None, math.inf))
            ready += 1

    async def _open_one(self, pending: Pending) -> None:
        connection = UpstreamConnection(self)
        connect_s = self._timeouts.connect_s
        try:
            async with asyncio.timeout(connect_s):
                if self._carrier is not None and pending.exchange is not None:
                    address = await self._dialer.locate()
                    self._carrier.carry(connection, pending.exchange, address)
                else:
                    address = await self._dialer.dial(connection)
        except asyncio.CancelledError:
            connection.abandon()
            raise
        except TimeoutError:
            connection.abandon()
            self.connect_timeouts += 1
            self._dialer.doubt()
            detail = f"{self.name} did not accept a connection within {connect_s:g} s"
            self._tell_failed(pending, Failure(FailureKind.connect_timeout, detail))
        except (OSError, UnicodeError) as error:  # UnicodeError: the host is no name that could be looked up
            connection.abandon()
            self.connect_failures += 1
            detail = f"no connection to {self.name}: {getattr(error, 'strerror', None) or error}"
            ours = getattr(error, "errno", None) in _EXHAUSTED
            kind = FailureKind.exhausted if ours else FailureKind.connect_failed
            self._tell_failed(pending, Failure(kind, detail))
        else:
            if connection.is_closing():
                self.connect_failures += 1
                detail = f"{self.name} closed the connection as soon as it was made"
                self._tell_failed(pending, Failure(FailureKind.connect_failed, detail))
            else:
                self._opened(pending, connection, address)

    def _opened(self, pending: Pending, connection: UpstreamConnection, address: Address | None) -> None:
        now = self._loop.time()
        self.connects += 1
        self._open[connection] = _Made(address, now)
        self._dialling.discard(pending)
        self._warm_at, self._warm_pause_s = -math.inf, _WARM_AGAIN_S
        if pending.exchange is not None:
            pending.exchange.attach(connection)
            return
        connection.keep()
        if self._closed:
            connection.drop()
        else:
            self._offer(connection, now)

    def _tell_failed(self, pending: Pending, failure: Failure) -> None:
        if pending.exchange is not None:
            pending.exchange.connect_failed(failure)
        else:
            self._warm_at = self._loop.time() + self._warm_pause_s
            self._warm_pause_s = min(2 * self._warm_pause_s, _WARM_AGAIN_AT_MOST_S)
