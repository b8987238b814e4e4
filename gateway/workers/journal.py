"""What people have changed of the pools by the API, to be told to workers that begin later. Pure.

Nothing else remembers it: a replica that was added, drained or taken out by hand stands in no file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Deed:
    """One change, as it was asked for. `what`, `name`: as the worker's answer calls it, and the replica."""

    what: str
    name: str
    method: str
    path: str
    body: bytes


class Journal:
    """Changes in their order, without those that later ones have undone."""

    def __init__(self) -> None:
        self.deeds: list[Deed] = []

    def note(self, method: str, path: str, body: bytes, answer: Mapping[str, Any]) -> None:
        """A change that was done; `answer` says of what replica."""
        what, name = answer.get("what"), answer.get("name")
        if not isinstance(what, str) or not isinstance(name, str):
            return
        before = [deed for deed in self.deeds if deed.name == name]
        added_by_hand = any(deed.what == "added" for deed in before)
        match what:
            case "added":
                undone = before
            case "removed":
                undone = before
            case _:
                undone = [deed for deed in before if deed.what == "draining"]
        self.deeds = [deed for deed in self.deeds if deed not in undone]
        if what == "undrained" or (what == "removed" and added_by_hand):
            return
        self.deeds.append(Deed(what, name, method, path, body))
