"""One replica's step feed: a subscription that survives whatever happens to either side.

Owns the connection, the position in the stream and the run (`boot`) of the engine that is listened to; hands every
record on exactly once. Knows no request. Whatever comes over the wire, nothing is raised and nobody waits: a line that
is no record is counted, a stream of them is left, a silent one is given up after five seconds (it speaks every second).

Position. Rollups cover what came since the last one, so a lost connection resumes behind the last rollup, and the
records after it that were already seen are skipped. With a new boot everything that is still there is new.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import structlog

from gateway.feed.records import Alive, Compile, End, Hello, Lost, Note, Offence, RecordError, Rollup, Step, parse_line
from gateway.feed.session import ReplicaSession
from gateway.feed.target import Target

log = structlog.get_logger("steplane.feed")

_ROLLUP_S = 1.0
_NO_STEP_US = 1e12
_LONGEST_LINE_BYTES = 1 << 20
_MOST_GARBAGE = 100
"""Lines in one connection that are no records, until it is taken for something else."""
_LINES_AT_ONCE = 200
"""A backlog is worked off in turns, so that requests get theirs in between."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a feed is waited for, in seconds.

    connect_s:            a connection, and the first answer on it.
    silence_s:            between two reads; a step feed speaks every second.
    first_pause_s:        after a failure, doubled with each further one.
    longest_pause_s:      between attempts at a feed that has never spoken.
    longest_pause_seen_s: at one that has: it, or its engine, will be back.
    scrape_every_s:       between two readings of the metrics of a replica without a feed.
    """

    connect_s: float = 2.0
    silence_s: float = 5.0
    first_pause_s: float = 0.25
    longest_pause_s: float = 30.0
    longest_pause_seen_s: float = 2.0
    scrape_every_s: float = 5.0


class Listener(Protocol):
    """Takes the records of one replica, in order."""

    def step(self, record: Step) -> None: ...

    def rollup(self, record: Rollup) -> None: ...

    def compile(self, record: Compile) -> None: ...

    def offence(self, record: Offence) -> None: ...

    def alive(self, record: Alive) -> None: ...

    def gone(self, boot: str) -> None:
        """The engine that ran as `boot` runs no more. Told once for each boot."""

    def connected(self, hello: Hello | None) -> None:
        """The feed speaks now, beginning with `hello`; None: it does not."""


class _NoFeedError(Exception):
    """What answers there is no step feed, or none for us."""


class StepFeed:
    """A subscription to `target.feed_url`. All methods belong to one event loop.

    hello:      of the latest connection; None before the first.
    records, lost, garbage, failed: lines taken, records overwritten unread, lines that are no records, and records that
                whoever was told of them failed on.
    boots:      runs of the engine that were heard of.
    last_error: why it is not connected; None while it is, or where nothing was to be expected.
    """

    def __init__(
        self,
        target: Target,
        listener: Listener,
        session: ReplicaSession,
        random_source: random.Random,
        patience: Patience = Patience(),
    ) -> None:
        """`session` is shared by all feeds. ValueError: the target has no feed."""
        url = target.feed_url
        if url is None:
            raise ValueError(f"replica {target.name} has no step feed; none is to be subscribed to")
        self.hello: Hello | None = None
        self.connected = False
        self.last_error: str | None = None
        self.records = self.lost = self.garbage = self.failed = self.boots = 0
        self._url = url
        self._target = target
        self._listener = listener
        self._session = session
        self._random = random_source
        self._patience = patience
        self._timeout = aiohttp.ClientTimeout(
            total=None,
            connect=patience.connect_s,
            sock_connect=patience.connect_s,
            sock_read=patience.silence_s,
        )
        self._pause_s = patience.first_pause_s
        self._hurry = asyncio.Event()
        self._boot = ""
        self._gone_boot = ""
        self._after = 0
        self._seen = 0
        self._told = ""

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            try:
                await self._listen()
                problem = None
            except (aiohttp.ClientError, OSError, TimeoutError, _NoFeedError) as error:
                problem = _said(error)
            except Exception as error:  # whatever it is: a feed that can't be read must not end the subscription
                log.exception("step_feed_failed", replica=self._target.name)
                problem = _said(error)
            self._set_connected(False)
            self._tell(problem)
            await self._wait()

    def hurry(self) -> None:
        """Cut the wait for the next attempt short: there are signs that the replica is back."""
        if not self.connected:
            self._pause_s = self._patience.first_pause_s
            self._hurry.set()

    async def _listen(self) -> None:
        """One connection, to its end."""
        async with self._session.get(
            self._url + "/steps",
            params=self._query(),
            headers=self._target.headers,
            timeout=self._timeout,
            allow_redirects=False,
        ) as response:
            if response.status != 200:
                raise _NoFeedError(_refusal(response.status))
            await self._read(response.content)

    def _query(self) -> dict[str, str]:
        least = self._target.least_own_us
        query = {"min_own_us": f"{_NO_STEP_US if least is None else least:g}", "rollup_s": f"{_ROLLUP_S:g}"}
        if self._boot:
            return query | {"boot": self._boot, "after": str(self._after)}
        return query | {"from": "newest"}

    async def _read(self, content: aiohttp.StreamReader) -> None:
        rest = b""
        greeted = False
        garbage_before = self.garbage
        time = asyncio.get_running_loop().time
        line_s = time()
        async for data in content.iter_any():
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > _LONGEST_LINE_BYTES:
                raise _NoFeedError(f"a line of more than {_LONGEST_LINE_BYTES} bytes")
            if lines:
                line_s = time()
            elif time() - line_s > self._patience.silence_s:
                raise _NoFeedError(f"no whole line within {self._patience.silence_s:g} s")
            for number, line in enumerate(lines, 1):
                if not greeted:
                    self._greet(line)
                    greeted = True
                else:
                    self._take(line)
                if number % _LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
            if self.garbage - garbage_before > _MOST_GARBAGE:
                raise _NoFeedError("its lines are no records of a step feed")

    def _greet(self, line: bytes) -> None:
        try:
            hello = parse_line(line)
        except RecordError as error:
            raise _NoFeedError(str(error)) from None
        if not isinstance(hello, Hello):
            raise _NoFeedError("its first line is no greeting of a step feed")
        if hello.boot != self._boot:
            self.boots += 1
            if self._boot:
                self._is_gone()
            # The first time, what was before is nobody's of ours; after a restart all of it is new.
            self._after = self._seen = 0 if self._boot else hello.next_seq - 1
            self._boot = hello.boot
        self.hello = hello
        self._pause_s = self._patience.first_pause_s
        if hello.boot != self._gone_boot:
            self._set_connected(True)

    def _take(self, line: bytes) -> None:
        """One line; nothing it says, and nothing that is done with it, is raised."""
        try:
            self._hand_on(line)
            self.records += 1
        except RecordError as error:
            self.garbage += 1
            log.debug("step_feed_garbage", replica=self._target.name, error=str(error))
        except Exception:
            self.failed += 1
            if self.failed == 1:  # the next ones fail alike, at the pace of the engine's steps
                log.exception("step_feed_record_failed", replica=self._target.name)

    def _hand_on(self, line: bytes) -> None:
        record = parse_line(line)
        listener = self._listener
        match record:
            case Step():
                if self._is_new(record.seq):
                    listener.step(record)
            case Rollup():
                self._seen = max(self._seen, record.after)
                self._after = record.after
                listener.rollup(record)
            case Alive():
                listener.alive(record)
            case Compile():
                if self._is_new(record.seq):
                    listener.compile(record)
            case Offence():
                if self._is_new(record.seq):
                    listener.offence(record)
            case Note():
                if self._is_new(record.seq):
                    log.info("step_feed_note", replica=self._target.name, text=record.text)
            case Lost():
                self.lost += record.count
            case End():
                self._is_gone()

    def _is_new(self, seq: int) -> bool:
        if seq <= self._seen:
            return False
        self._seen = seq
        return True

    def _is_gone(self) -> None:
        """The engine of the present boot has ended; its feed may speak on for some seconds."""
        if self._gone_boot != self._boot:
            self._gone_boot = self._boot
            log.warning("engine_gone", replica=self._target.name, boot=self._boot)
            self._set_connected(False)
            self._listener.gone(self._boot)

    def _set_connected(self, connected: bool) -> None:
        if connected != self.connected:
            self.connected = connected
            if connected:
                self.last_error, self._told = None, ""
                log.info("step_feed_connected", replica=self._target.name, url=self._url)
            self._listener.connected(self.hello if connected else None)

    def _tell(self, problem: str | None) -> None:
        """Note why there is no feed; log it once, and loudly only where one was promised or has been."""
        if self._gone_boot and self._gone_boot == self._boot:
            problem = "the engine is gone"
        self.last_error = problem or "the feed ended"
        if self.last_error == self._told:
            return
        self._told = self.last_error
        promised = self._target.feed != "auto" or self.hello is not None
        (log.warning if promised else log.debug)(
            "step_feed_unavailable", replica=self._target.name, url=self._url, error=self.last_error
        )

    async def _wait(self) -> None:
        patience = self._patience
        longest_s = patience.longest_pause_s if self.hello is None else patience.longest_pause_seen_s
        pause_s = min(self._pause_s, longest_s)
        self._pause_s = pause_s * 2
        try:
            # Spread, so that gateways that lost a feed together do not come back together.
            async with asyncio.timeout(pause_s * self._random.uniform(0.75, 1.0)):
                await self._hurry.wait()
        except TimeoutError:
            return
        finally:
            self._hurry.clear()


def _refusal(status: int) -> str:
    if status in {401, 403}:
        return f"the step feed answered {status}: it wants another token than the one configured"
    return f"{status} on /steps: no step feed"


def _said(error: BaseException) -> str:
    text = str(error)
    return (
        text if isinstance(error, _NoFeedError) else f"{type(error).__name__}: {text}" if text else type(error).__name__
    )
