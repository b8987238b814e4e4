"""Local references: any JSON pointer into the schema, so that no odd pointer hides what it points at."""

from collections.abc import Iterator
from urllib.parse import unquote, urljoin

MISSING = object()
"""What a pointer into nothing resolves to."""
MAX_STEPS = 1_024
"""No schema is nested deeper, so that a longer pointer points at nothing."""
MAX_DOCUMENTS = 50
"""Definitions with a name of their own that are looked up by it."""
_UNQUOTING_WORK = 4


class References:
    """The places of one schema by the pointers to them, each looked up once.

    work: steps taken so far, of about a fifth of a microsecond, for a caller that shares its time.
    """

    __slots__ = ("_anchors", "_documents", "_found", "root", "work")

    def __init__(self, root: object) -> None:
        self.root = root
        self.work = 0
        self._found: dict[str, object] = {}
        self._anchors: dict[str, object] | None = None
        self._documents: dict[str, object] | None = None

    def resolve(self, uri: str) -> object:
        """The schema at `uri`, `MISSING` where it points nowhere, True (anything) where it points out of the document.

        Resolves more than some engines do (escaped steps, array indices, anchors), never less.
        """
        found = self._found.get(uri, self)
        if found is self:
            found = self._found[uri] = self._resolved(uri)
        return found

    def document(self, uri: str) -> object:
        """The definition that has `uri` for its own name, or `MISSING`: a document inside the document."""
        if self._documents is None:
            self._documents = {}
            base = _name_of(self.root)
            for definition in _definitions(self.root):
                self.work += _UNQUOTING_WORK
                name = _name_of(definition)
                if len(self._documents) >= MAX_DOCUMENTS:
                    break
                if name and not name.startswith("#"):
                    self._documents.setdefault(_joined(base, name), definition)
        return self._documents.get(_joined(_name_of(self.root), uri), MISSING) if self._documents else MISSING

    def _resolved(self, uri: str) -> object:
        if uri in ("#", ""):
            return self.root
        if not uri.startswith("#"):
            return True
        if not uri.startswith("#/"):
            return self._anchored(uri[1:])
        steps = uri.count("/")
        self.work += steps
        if steps > MAX_STEPS:
            return MISSING
        current = self.root
        for step in uri[2:].split("/"):
            found = _step(current, step)
            if found is MISSING:
                self.work += _UNQUOTING_WORK
                found = _step(current, unquote(step).replace("~1", "/").replace("~0", "~"))
            if found is MISSING:
                return MISSING
            current = found
        return current

    def _anchored(self, name: str) -> object:
        """A plain-name fragment: `$anchor` or `$id` in a definition of the root; the first of a name counts."""
        if self._anchors is None:
            self._anchors = {}
            for definition in _definitions(self.root):
                self.work += _UNQUOTING_WORK
                for keyword in ("$anchor", "$id", "id"):
                    anchor = definition.get(keyword)
                    if isinstance(anchor, str):
                        self._anchors.setdefault(anchor if keyword == "$anchor" else anchor.lstrip("#"), definition)
        return self._anchors.get(name, True)


def localised(root: object, uri: str) -> str:
    """`uri` without the document's own name in front, if it has that."""
    if not uri.startswith("#") and isinstance(root, dict):
        for keyword in ("$id", "id"):
            name = root.get(keyword)
            if isinstance(name, str) and name and uri.startswith(name.rstrip("#")):
                rest = uri[len(name.rstrip("#")) :]
                if rest == "" or rest.startswith("#"):
                    return rest or "#"
    return uri


def _name_of(schema: object) -> str:
    names = [schema.get("$id"), schema.get("id")] if isinstance(schema, dict) else []
    return next((name for name in names if isinstance(name, str)), "")


def _joined(base: str, uri: str) -> str:
    try:
        return urljoin(base, uri)
    except ValueError:
        return uri


def _definitions(root: object) -> Iterator[dict[str, object]]:
    if isinstance(root, dict):
        for group in ("$defs", "definitions"):
            definitions = root.get(group)
            if isinstance(definitions, dict):
                yield from (each for each in definitions.values() if isinstance(each, dict))


def _step(current: object, step: str) -> object:
    if isinstance(current, dict):
        return current.get(step, MISSING)
    if isinstance(current, list) and step.isdecimal() and len(step) < 7 and int(step) < len(current):
        return current[int(step)]
    return MISSING
