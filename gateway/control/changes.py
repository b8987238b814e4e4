"""What differs between two configurations, key by key, and which of it a running gateway can't take over.

Lists whose entries have names are compared by name. Secrets are named and never shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from gateway.control.config import Config
from gateway.control.document import Location
from gateway.control.secrets import shown_value

LIVE = frozenset(
    {
        "include",
        "reload",
        "default_pool",
        "forwarding",
        "logs",
        "limits",
        "deadlines",
        "models",
        "timeouts",
        "hookcost",
        "breaker",
        "tenants",
        "control_paths",
        "worker_silent_s",
        "pools",
        "zone",
        "rules",
    }
)
"""The parts that a running gateway takes over. The others are sockets, processes and connections to a store: they need
a restart."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `before` or `after` is None where there was, or is, nothing.

    key:     as in `pools.grammar.replicas.g1.url`.
    restart: it is taken over by a restart only.
    """

    key: str
    before: str | None
    after: str | None
    restart: bool = False

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.key}: {self.after} is new"
        if self.after is None:
            return f"{self.key}: {self.before} is gone"
        return f"{self.key}: {self.before} → {self.after}"


def changes_between(before: Config, after: Config) -> tuple[Change, ...]:
    """All differences, in the order of the models."""
    return tuple(_Comparison(before, after).differences(before, after, (), (), ()))


class _Comparison:
    """Two configurations. A place has three names: its key for people, and its location in either document."""

    def __init__(self, before: Config, after: Config) -> None:
        self._origins = (before.origins, after.origins)

    def differences(
        self, before: Any, after: Any, key: tuple[str, ...], old: Location, new: Location
    ) -> Iterator[Change]:
        if before == after:
            return
        if isinstance(before, BaseModel) and type(before) is type(after):
            for name in type(before).model_fields:
                mine, theirs = getattr(before, name), getattr(after, name)
                yield from self.differences(mine, theirs, (*key, name), (*old, name), (*new, name))
        elif isinstance(before, dict) and isinstance(after, dict):
            yield from self._by_name(
                {name: (name, each) for name, each in before.items()},
                {name: (name, each) for name, each in after.items()},
                (key, old, new),
            )
        elif isinstance(before, list) and isinstance(after, list) and _named(before) and _named(after):
            yield from self._by_name(_numbered(before), _numbered(after), (key, old, new))
            yield from self._order(before, after, key)
        else:
            yield self._change(key, self._shown(0, before, old), self._shown(1, after, new))

    def _by_name(
        self,
        before: dict[str, tuple[str | int, Any]],
        after: dict[str, tuple[str | int, Any]],
        place: tuple[tuple[str, ...], Location, Location],
    ) -> Iterator[Change]:
        key, old, new = place
        for name, (at, each) in before.items():
            if name not in after:
                yield self._change((*key, str(name)), self._shown(0, each, (*old, at)), None)
            else:
                now_at, now = after[name]
                yield from self.differences(each, now, (*key, str(name)), (*old, at), (*new, now_at))
        for name, (at, each) in after.items():
            if name not in before:
                yield self._change((*key, str(name)), None, self._shown(1, each, (*new, at)))

    def _order(self, before: list[Any], after: list[Any], key: tuple[str, ...]) -> Iterator[Change]:
        old, new = [_name_of(each) for each in before], [_name_of(each) for each in after]
        common = set(old).intersection(new)
        if [name for name in old if name in common] != [name for name in new if name in common]:
            yield self._change(key, "their order", "another order")

    def _change(self, key: tuple[str, ...], before: str | None, after: str | None) -> Change:
        return Change(".".join(key), before, after, restart=key[0] not in LIVE)

    def _shown(self, which: int, value: Any, location: Location) -> str:
        """In a few words: a whole part by what names it."""
        match value:
            case BaseModel():
                url = getattr(value, "url", None)
                return str(url) if url is not None else f"a part with {', '.join(sorted(value.model_fields_set))}"
            case dict():
                return f"a mapping with {', '.join(map(str, value))}" if value else "an empty mapping"
            case list() | tuple():
                return f"a list of {len(value)}" if value else "an empty list"
            case None:
                return "nothing"
        return str(shown_value(location, value, self._origins[which]))


def _name_of(entry: Any) -> str | None:
    """What an entry of a list is known by."""
    name = getattr(entry, "label", None) or getattr(entry, "name", None)
    return name if isinstance(name, str) else None


def _named(entries: list[Any]) -> bool:
    names = [_name_of(entry) for entry in entries]
    return None not in names and len(set(names)) == len(names)


def _numbered(entries: list[Any]) -> dict[str, tuple[str | int, Any]]:
    return {str(_name_of(entry)): (at, entry) for at, entry in enumerate(entries)}
