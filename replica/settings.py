"""What the `STEPLANE_*` variables of an engine's environment say.

A value that cannot be used is reported and replaced by its default: a typing mistake must not keep an engine down.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from replica.recorder.judge import Limits

_T = TypeVar("_T")
_MIB = 1 << 20
# A feed listens on its engine's port plus this, unless it is told otherwise.
FEED_PORT_OFFSET = 1000


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the step feed serves. `port` 0: any free one."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Everything that can be set from outside.

    feed:             None: no feed.
    feed_token:       what callers of the feed must present as bearer token; empty: nothing.
    ring_bytes:       memory for records that nobody has read yet.
    compile_threads:  of the grammar backends that Steplane adds.
    grammar_cache_mib: bound of their caches.
    sleepless:        wait for grammars without sleeping in the step.
    trial:            compile grammars that look heavy in a child that can be killed first.
    problems:         one line for each value that could not be used.
    """

    limits: Limits
    feed: Listen | None
    feed_token: str
    ring_bytes: int
    compile_threads: int
    grammar_cache_mib: int
    sleepless: bool
    trial: bool
    problems: tuple[str, ...]

    @property
    def give_up_s(self) -> float:
        """When a compile is given up: a little after whoever waits for it has been failed. 0: never."""
        return self.limits.compile_ms * 1.25 / 1e3


def beside(port: int, rank: int = 0) -> Listen:
    """Where the feed of an engine on `port` listens by default: this machine alone can reach it."""
    feed = port + FEED_PORT_OFFSET + rank
    return Listen("127.0.0.1", feed if feed <= 65535 else 0)


def read_settings(environment: Mapping[str, str], default_feed: Listen) -> ReplicaSettings:
    """Settings from `environment`; the feed listens on `default_feed` unless told otherwise."""
    source = _Source(environment)
    on, off = True, False
    words = {"abort": on, "record": off}
    defaults = Limits()

    feed: Listen | None = default_feed

    def parse_feed(text: str) -> Listen | None:
        return parse_listen(text, default_feed)

    limits = replace(
        defaults,
        hard_us=source.number("HARD_LIMIT_MS", defaults.hard_us / 1e3) * 1e3,
        budget_us=source.number("STEP_BUDGET_US", defaults.budget_us),
        soft_steps=int(source.number("SOFT_STEPS", defaults.soft_steps, least=1)),
        soft_window_s=source.number("SOFT_WINDOW_S", defaults.soft_window_s),
        compile_ms=source.number("COMPILE_LIMIT_MS", defaults.compile_ms),
        abort_hard=source.word("ON_HARD_LIMIT", words, defaults.abort_hard),
        abort_soft=source.word("ON_SOFT_LIMIT", words, defaults.abort_soft),
        abort_compile=source.word("ON_COMPILE_LIMIT", words, defaults.abort_compile),
    )
    return ReplicaSettings(
        limits=limits,
        feed=source.read("FEED_LISTEN", parse_feed, feed, "off, PORT or HOST:PORT"),
        feed_token=environment.get("STEPLANE_FEED_TOKEN", ""),
        ring_bytes=int(source.number("RING_MIB", 16.0, least=1)) * _MIB,
        compile_threads=int(source.number("COMPILE_THREADS", _compile_threads(), least=1)),
        grammar_cache_mib=int(source.number("GRAMMAR_CACHE_MIB", 2048.0, least=1)),
        sleepless=source.word("POLL_SLEEP", {"on": off, "off": on}, on),
        trial=source.word("COMPILE_TRIAL", {"on": on, "off": off}, on),
        problems=tuple(source.problems),
    )


def engine_settings(environment: Mapping[str, str], port: int, rank: int) -> ReplicaSettings:
    """Settings of an engine core that runs beside an API on `port`: one feed, and so one port, for each rank."""
    default = beside(port, rank)
    settings = read_settings(environment, default)
    if settings.feed is None or settings.feed.port == 0 or settings.feed == default:
        return settings
    return replace(settings, feed=replace(settings.feed, port=settings.feed.port + rank))


def parse_listen(text: str, default: Listen) -> Listen | None:
    """`off`, `PORT`, `HOST:PORT` or `[IPV6]:PORT`. ValueError: none of these."""
    if text.lower() in {"off", "none", "0"}:
        return None
    host, colon, port = text.rpartition(":")
    number = int(port)
    if not 0 <= number <= 65535:
        raise ValueError(text)
    return Listen(host.strip("[]") if colon else default.host, number)


def _compile_threads() -> int:
    """One, or two where there are processors to spare: beside two, a step on a small machine has none left."""
    return max(1, min(2, (os.cpu_count() or 1) // 4))


class _Source:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []

    def read(self, name: str, parse: Callable[[str], _T], default: _T, expected: str) -> _T:
        name = f"STEPLANE_{name}"
        text = self._environment.get(name, "").strip()
        if not text:
            return default
        try:
            return parse(text)
        except ValueError:
            self.problems.append(f"{name}={text!r} cannot be used; expected {expected}; going on with {default}")
            return default

    def number(self, name: str, default: float, *, least: float = 0.0) -> float:
        def parse(text: str) -> float:
            value = float(text)
            if not least <= value < 1e15:
                raise ValueError(text)
            return value

        return self.read(name, parse, default, f"a number of at least {least:g}")

    def word(self, name: str, words: Mapping[str, bool], default: bool) -> bool:
        def parse(text: str) -> bool:
            try:
                return words[text.lower()]
            except KeyError:
                raise ValueError(text) from None

        return self.read(name, parse, default, " or ".join(words))
