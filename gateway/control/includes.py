"""A configuration in several files: `include: [replicas/*.yaml]` merged into the file that says so.

Mappings are merged and lists appended, in the order of the files; whatever else stands in two of them is a mistake, for
neither would be right. Every value keeps the file and line where it was written. Knows nothing of what the keys mean.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gateway.control.document import Document, Location, Mark, key_path, read_document
from gateway.control.problem import ConfigError, Problem, shown

INCLUDE = "include"
_WILDCARDS = frozenset("*?[")


def read_with_includes(path: Path, variables: Mapping[str, str] = os.environ) -> Document:
    """Read a file and all that it includes. Raises ConfigError with everything that keeps them from being read."""
    return join_includes(read_document(path, variables), path, variables)


def join_includes(document: Document, path: Path, variables: Mapping[str, str] = os.environ) -> Document:
    """Merge what a document includes into it; `path` is where it stands. Raises ConfigError."""
    if INCLUDE not in _mapping(document):
        return document
    joined = _Joined(document, variables)
    joined.follow(document, path, (path,))
    if joined.problems:
        raise ConfigError(joined.problems)
    return joined.document()


class _Joined:
    """What was read so far."""

    def __init__(self, root: Document, variables: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._variables = variables
        self._root = root
        self._data = _mapping(root)
        self._keys = dict(root.keys)
        self._values = dict(root.values)
        self._origins = dict(root.origins)
        self._files = [*root.files]
        self._places: dict[Path, Mark] = {}
        """Of each file that is included, where that is said."""

    def document(self) -> Document:
        return Document(self._root.file, self._data, self._keys, self._values, self._origins, tuple(self._files))

    def follow(self, document: Document, path: Path, way: tuple[Path, ...]) -> None:
        """Merge what `document`, which stands at `path`, includes. `way`: the files that led here, it among them."""
        for location, pattern in self._patterns(document):
            for file in self._found(document, location, path.parent, pattern):
                self._include(document, location, file, way)

    def _patterns(self, document: Document) -> Iterator[tuple[Location, str]]:
        wanted = _mapping(document).get(INCLUDE, [])
        if not isinstance(wanted, list):
            self._problem(document, (INCLUDE,), "a list of files, as in [replicas/*.yaml]", shown(wanted))
            return
        for at, pattern in enumerate(wanted):
            if isinstance(pattern, str) and pattern:
                yield (INCLUDE, at), pattern
            else:
                self._problem(document, (INCLUDE, at), "a file, as in replicas/*.yaml", shown(pattern))

    def _found(self, document: Document, location: Location, folder: Path, pattern: str) -> list[Path]:
        if not _WILDCARDS.intersection(pattern):
            return [folder / pattern]
        try:
            # A pattern that finds nothing is a folder that is still empty.
            return sorted(_root_of(folder, pattern).glob(_relative(pattern)))
        except (ValueError, NotImplementedError) as error:
            self._problem(document, location, "a file or a pattern such as replicas/*.yaml", f"{pattern!r}: {error}")
            return []

    def _include(self, document: Document, location: Location, file: Path, way: tuple[Path, ...]) -> None:
        known = {each.resolve(): each for each in way}
        real = file.resolve()
        if real in known:
            names = " → ".join(str(each) for each in [*way[way.index(known[real]) :], file])
            self._problem(document, location, "a file that does not lead back", names)
            return
        first = self._places.get(real)
        if first is not None:
            found = f"{file} a second time (the first is {first.file}:{first.line})"
            self._problem(document, location, "each file once", found)
            return
        self._places[real] = document.values[location]
        try:
            included = read_document(file, self._variables)
        except ConfigError as error:
            unreadable = [each for each in error.problems if not each.key and each.expected == "a readable file"]
            for each in unreadable:
                self._problem(document, location, f"a readable file {file}", each.found)
            self.problems += [each for each in error.problems if each not in unreadable]
            return
        self._merge(included)
        self.follow(included, file, (*way, file))

    def _merge(self, included: Document) -> None:
        shifts: dict[Location, int] = {}
        data = {key: value for key, value in _mapping(included).items() if key != INCLUDE}
        self._join(included, self._data, data, (), shifts)
        for mine, theirs in ((self._keys, included.keys), (self._values, included.values)):
            for location, mark in theirs.items():
                if location and location[0] != INCLUDE:
                    mine.setdefault(_shifted(location, shifts), mark)
        for location, origin in included.origins.items():
            self._origins.setdefault(_shifted(location, shifts), origin)
        self._files += included.files

    def _join(
        self,
        included: Document,
        into: dict[str, Any],
        data: dict[str, Any],
        above: Location,
        shifts: dict[Location, int],
    ) -> None:
        for key, value in data.items():
            location = (*above, key)
            if key not in into:
                into[key] = value
                continue
            present = into[key]
            if isinstance(present, dict) and isinstance(value, dict):
                self._join(included, present, value, location, shifts)
            elif isinstance(present, list) and isinstance(value, list):
                shifts[location] = len(present)
                present.extend(value)
            else:
                first = self._keys[location]
                mark = included.keys[location]
                found = f"a second one (the first is {first.file}:{first.line})"
                where = (mark.file, mark.line, mark.column)
                self.problems.append(Problem(*where, key_path(location), "each key in one file", found))

    def _problem(self, document: Document, location: Location, expected: str, found: str | None) -> None:
        self.problems.append(document.problem(location, expected, found))


def _shifted(location: Location, shifts: Mapping[Location, int]) -> Location:
    """Where what stands at `location` of an included file is in the whole; lists don't nest in lists that shift."""
    if not shifts:
        return location
    for end in range(1, len(location)):
        shift = shifts.get(location[:end])
        if shift is not None:
            at = location[end]
            assert isinstance(at, int)
            return (*location[:end], at + shift, *location[end + 1 :])
    return location


def _mapping(document: Document) -> dict[str, Any]:
    assert isinstance(document.data, dict)
    return document.data


def _root_of(folder: Path, pattern: str) -> Path:
    return Path(Path(pattern).anchor) if Path(pattern).is_absolute() else folder


def _relative(pattern: str) -> str:
    return str(Path(pattern).relative_to(Path(pattern).anchor))
