"""Local references: any JSON pointer into the schema, so that no odd pointer hides what it points at."""

from urllib.parse import unquote

MISSING = object()
"""What a pointer into nothing resolves to."""


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


def resolve(root: object, uri: str) -> object:
    """The schema at `uri`, `MISSING` where it points nowhere, True (anything) where it points out of the document.

    Resolves more than some engines do (escaped steps, array indices, anchors), never less.
    """
    if uri in ("#", ""):
        return root
    if not uri.startswith("#"):
        return True
    if not uri.startswith("#/"):
        return _anchor(root, uri[1:])
    current = root
    for step in uri[2:].split("/"):
        found = _step(current, step)
        if found is MISSING:
            found = _step(current, unquote(step).replace("~1", "/").replace("~0", "~"))
        if found is MISSING:
            return MISSING
        current = found
    return current


def _step(current: object, step: str) -> object:
    if isinstance(current, dict):
        return current.get(step, MISSING)
    if isinstance(current, list) and step.isdecimal() and len(step) < 7 and int(step) < len(current):
        return current[int(step)]
    return MISSING


def _anchor(root: object, name: str) -> object:
    """A plain-name fragment: `$anchor` or `$id` in a definition of the root."""
    if isinstance(root, dict):
        for group in ("$defs", "definitions"):
            definitions = root.get(group)
            if isinstance(definitions, dict):
                for definition in definitions.values():
                    if isinstance(definition, dict) and name in (
                        definition.get("$anchor"),
                        str(definition.get("$id", "")).lstrip("#"),
                        str(definition.get("id", "")).lstrip("#"),
                    ):
                        return definition
    return True
