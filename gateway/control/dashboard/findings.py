"""Whether anything is wrong, and since when: one list, worst first, out of what the pages show anyway. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["bad", "warn"]
_ORDER = {"bad": 0, "warn": 1}
_MANY_FAILED = 0.05
_FEW_REQUESTS = 20.0
_LONG_QUEUE = 0.5


@dataclass(frozen=True, slots=True)
class Finding:
    """What is not as it should be. `since`: seconds of the wall clock, None where nobody else knows it."""

    key: str
    level: Level
    said: str
    since: float | None = None


class Findings:
    """Remembers since when each thing has been wrong of which nobody else knows it."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def document(self, found: Iterable[Finding], now: float) -> dict[str, Any]:
        """The line on top of the page: `level` is `ok`, `warn` or `bad`."""
        findings = list(found)
        self._since = {each.key: self._since.get(each.key, now) for each in findings}
        shown = [
            {"key": each.key, "level": each.level, "said": each.said, "since": each.since or self._since[each.key]}
            for each in sorted(findings, key=lambda each: _ORDER[each.level])
        ]
        return {"level": shown[0]["level"] if shown else "ok", "findings": shown}


def of_pools(pools: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """What is wrong with pools; `pools` as the page is told of them."""
    for name, pool in pools.items():
        if not pool["available"]:
            others = "" if pool["spills_to"] is None else f"; its requests go to {pool['spills_to']}"
            yield Finding(f"pool:{name}", "bad", f"pool {name} has no replica that takes requests{others}")
        if pool["oldest_s"] > pool["max_wait_s"] * _LONG_QUEUE:
            said = f"{pool['waiting']} requests wait for pool {name}, the oldest for {pool['oldest_s']:.0f} s"
            yield Finding(f"queue:{name}", "warn", said)
        answered = pool["per_minute"]
        if answered >= _FEW_REQUESTS and pool["failed"] > answered * _MANY_FAILED:
            share = pool["failed"] / answered
            yield Finding(f"failed:{name}", "bad", f"{share:.0%} of the requests of pool {name} failed (5xx) lately")


def of_replicas(replicas: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """What is wrong with replicas."""
    for name, replica in replicas.items():
        state, why = replica["state"], replica["why"]
        because = f": {why}" if why else ""
        if state == "down":
            yield Finding(f"replica:{name}", "warn", f"replica {name} is down{because}", replica["since"])
        elif state in ("ejected", "trial"):
            word = "is ejected" if state == "ejected" else "is on trial after an ejection"
            yield Finding(f"replica:{name}", "warn", f"replica {name} {word}{because}", replica["since"])
        if replica["feed_lost"] and state not in ("down", "draining"):
            said = f"the step feed of replica {name} is gone: its hook time is not seen"
            yield Finding(f"feed:{name}", "warn", said)


def of_quarantine(entries: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """That something is quarantined."""
    barred = [each for each in entries.values() if each["state"] in ("open", "half_open", "pinned")]
    if barred:
        kinds = "kind of request is" if len(barred) == 1 else "kinds of requests are"
        since = min((each["since"] for each in barred if each["since"]), default=None)
        yield Finding("quarantine", "warn", f"{len(barred)} {kinds} quarantined", since)


def of_configuration(loaded: Mapping[str, Any]) -> Iterator[Finding]:
    """That the file that is there is not the one in force."""
    last = loaded["last_reload"]
    if last is not None and last["why"]:
        said = f"the last reload failed, the old configuration stays in force: {last['why']}"
        yield Finding("reload", "warn", said, loaded["failing_since"])
    elif last is not None and last["needs_restart"]:
        said = f"only a restart takes over what has changed in {', '.join(last['needs_restart'][:5])}"
        yield Finding("restart", "warn", said, last["at"])


def of_store(kind: str, connected: bool, since: float) -> Iterator[Finding]:
    """That other gateways do not hear of what is learned here."""
    if not connected:
        yield Finding("store", "warn", f"the shared state ({kind}) can't be reached: gateways learn alone", since)
