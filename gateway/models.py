"""The models behind the gateway as one list: what is served, under which names, and what nobody serves.

Joins the replicas' own lists to the aliases of the configuration, and answers `/v1/models` with that. Which pool a
model goes to is the rules'.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import orjson

from gateway.control.modelsconfig import ModelsConfig
from gateway.feed.catalogue import Catalogue
from gateway.hookcost.objecttext import UNREADABLE, changed, fields_of
from gateway.wire.message import Reply, error_reply

_LIST: Final = "/v1/models"
_ONE: Final = "/v1/models/"


def lists_models(method: bytes, path: str) -> bool:
    """Whether a request asks which models there are."""
    return method == b"GET" and (path == _LIST or path.startswith(_ONE))


class Models:
    """See the module.

    merges:          `/v1/models` is answered here where replicas serve different models, or there are aliases; else
                     a replica of the default pool answers.
    aliases:         the model's real name by what clients call it.
    refuses_unknown: a model that no replica serves is answered with 404 instead of being sent to one.
    names_matter:    requests need a look at the model that they name.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.merges = False
        self.aliases: Mapping[str, str] = {}
        self.refuses_unknown = False
        self.names_matter = False
        self._began_s = int(time.time())
        self._entries: dict[str, dict[str, Any]] | None = None
        catalogue.changed = self._forget

    def configure(self, config: ModelsConfig) -> None:
        """Take another configuration."""
        self.merges = config.list == "merged"
        self.aliases = dict(config.aliases)
        self.refuses_unknown = config.unknown == "refuse"
        self.catalogue.refresh_s = config.refresh_s
        self.names_matter = bool(self.aliases) or self.refuses_unknown
        self.catalogue.wanted = self.merges or self.names_matter
        self._forget()

    def answer(self, path: str) -> Reply | None:
        """What a request is answered with that asks which models there are; None: a replica is to be asked."""
        entries = self._listed() if self.merges else {}
        if not entries or not (self.aliases or self.catalogue.differs):
            return None  # nobody has said what it serves, or any replica's own list is that of all
        if path == _LIST:
            return _json({"object": "list", "data": list(entries.values())})
        entry = entries.get(path.removeprefix(_ONE))
        return _unknown(path.removeprefix(_ONE)) if entry is None else _json(entry)

    def renamed(self, model: str | None, body: bytes) -> bytes | None:
        """The body with the real name of its model in the place of an alias, every other byte as it came; else None."""
        real = None if model is None else self.aliases.get(model)
        if real is None:
            return None
        try:
            return changed(body, fields_of(body), {"model": orjson.dumps(real)})
        except UNREADABLE:
            return None

    def refusal(self, model: str | None) -> Reply | None:
        """What a request for a model that nobody serves is answered with; None for others, or while that is unclear."""
        if model is None or not self.refuses_unknown or not self.catalogue.complete:
            return None
        entries = self._listed()
        # SGLang names an adapter behind its base: `base:adapter`.
        if model in entries or model.partition(":")[0] in entries:
            return None
        return _unknown(model)

    def _listed(self) -> dict[str, dict[str, Any]]:
        if self._entries is None:
            entries = dict(self.catalogue.models())
            for alias, real in self.aliases.items():
                served = entries.get(real)
                if served is not None:
                    entries[alias] = {**served, "id": alias, "root": real}
            self._entries = entries
        return self._entries

    def _forget(self) -> None:
        self._entries = None


def _json(value: object) -> Reply:
    return Reply(200, orjson.dumps(value))


def _unknown(model: str) -> Reply:
    return error_reply(404, f"the model {model!r} does not exist", "model_not_found", param="model")
