"""A configuration as plain data plus the place of every key, so that a later check can point at the line.

Stricter than YAML where YAML hides mistakes: duplicate keys, keys that are no strings and second documents are errors.
A value may name variables (environment.py) or, as `!file PATH`, the file that holds it; a file may include others
(includes.py). Knows nothing of what the keys mean.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gateway.control.environment import VariableError, expand
from gateway.control.problem import ConfigError, Problem, shown

Location = tuple[str | int, ...]
"""The way to a value from the top of the document: keys and list positions."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file; line and column are counted from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """The data of a configuration; `keys` and `values` say where each key and each value begins.

    file:    the one that was asked for. files: all that were read, that one first; secrets among them.
    origins: what a value stands for that was not written here: it may be secret, so findings name this instead.
    """

    file: str
    data: object
    keys: Mapping[Location, Mark]
    values: Mapping[Location, Mark]
    origins: Mapping[Location, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def problem(
        self,
        location: Location,
        expected: str,
        found: str | None = None,
        hint: str | None = None,
        *,
        at_key: bool = False,
    ) -> Problem:
        """A finding at `location`, or at what encloses it where the file has no such place."""
        marks = self.keys if at_key else self.values
        place = location
        while place not in marks:
            place = place[:-1]
            marks = self.keys  # what encloses a missing thing is best found by its key
            if not place:
                break
        mark = marks.get(place) or Mark(self.file, 1, 1)
        if found is not None and not at_key:
            found = self.origins.get(location, found)
        return Problem(mark.file, mark.line, mark.column, key_path(location), expected, found, hint)


def key_path(location: Location) -> str:
    """`("rules", 2, "when", "step_us")` as `rules[2].when.step_us`."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def read_document(path: Path, variables: Mapping[str, str] = os.environ) -> Document:
    """Read and parse one file, includes left aside. Raises ConfigError when it can't be read or is no YAML mapping."""
    file = str(path)
    try:
        text = _read(path)
    except _UnreadableError as error:
        raise ConfigError([Problem(file, 1, 1, "", "a readable file", str(error))]) from None
    return parse_document(file, text, variables, path.parent)


def parse_document(
    file: str,
    text: str,
    variables: Mapping[str, str] = os.environ,
    folder: Path = Path(),
) -> Document:
    """Parse the text of a file; `file` is only named in findings. Raises ConfigError.

    variables: what `${NAME}` stands for. folder: where a `!file` is looked for.
    """
    try:
        node = _compose(file, text)
        builder = _Builder(file, text, variables, folder)
        data = builder.build(node, ())
    except yaml.YAMLError as error:
        raise ConfigError([_syntax_problem(file, text, error)]) from None
    if not isinstance(data, dict):
        builder.problems.append(Problem(file, 1, 1, "", "a mapping of keys to values", shown(data)))
    if builder.problems:
        raise ConfigError(builder.problems)
    return Document(file, data, builder.keys, builder.values, builder.origins, (file, *builder.files))


class _UnreadableError(Exception):
    """A file can't be read; the text says why."""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _UnreadableError("no such file") from None
    except OSError as error:
        raise _UnreadableError(error.strerror) from None
    except UnicodeDecodeError as error:
        raise _UnreadableError(f"byte 0x{error.object[error.start]:02x} at {error.start}") from None


# YAML 1.1 reads 1e6 as text, 010 as eight, 12:30 to base 60, 2026-01-01 as a date and off as false: nobody means that
# here.
_REPLACED = {f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp", "bool")}
_NUMBER_STARTS = list("-+.0123456789")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$")
_TRUTH = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")


class _Loader(yaml.SafeLoader):
    """Safe YAML with the numbers and truth values of YAML 1.2."""


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same in C where PyYAML has that: ten times as fast, and less clear about mistakes."""


for _each in (_Loader, _FastLoader):
    _each.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    _each.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, _NUMBER_STARTS)
    _each.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, _NUMBER_STARTS)
    _each.add_implicit_resolver("tag:yaml.org,2002:bool", _TRUTH, list("tTfF"))


def _compose(file: str, text: str) -> yaml.Node:
    """The nodes of a file. Raises ConfigError for one without any, YAMLError for one that is no YAML."""
    try:
        node = _node(_FastLoader(text))
    except yaml.YAMLError:
        node = _node(_Loader(text))
    if node is None:
        raise ConfigError([Problem(file, 1, 1, "", "a configuration", "an empty file")])
    return node


def _node(loader: Any) -> yaml.Node | None:
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


class _Builder:
    """Turns nodes into data, notes where everything stands, and collects what the YAML library would let pass."""

    def __init__(self, file: str, text: str, variables: Mapping[str, str], folder: Path) -> None:
        self.problems: list[Problem] = []
        self.keys: dict[Location, Mark] = {}
        self.values: dict[Location, Mark] = {}
        self.origins: dict[Location, str] = {}
        self.files: list[str] = []
        self._file = file
        self._text = text
        self._variables = variables
        self._folder = folder
        self._values = _Loader("")  # makes values of scalars
        self._open: set[int] = set()

    def build(self, node: yaml.Node, location: Location) -> Any:
        self.values[location] = self._mark(node)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, location)
        if id(node) in self._open:
            self._problem(node, location, "a value that does not contain itself", "an alias to what encloses it")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, location)
            return self._sequence(node, location)
        finally:
            self._open.remove(id(node))

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> Any:
        if "${" in node.value:
            try:
                expanded = expand(node.value, self._variables)
            except VariableError as error:
                self._problem(node, location, error.expected, error.found, error.hint, offset=self._offset(node, error))
                return None
            if expanded.names:
                self.origins[location] = f"what ${{{expanded.names[0]}}} holds"
            if node.tag != _FILE_TAG:
                return expanded.text
            node = yaml.ScalarNode(node.tag, expanded.text, node.start_mark, node.end_mark)
        if node.tag == _FILE_TAG:
            return self._content(node, location)
        return self._values.construct_object(node)

    def _content(self, node: yaml.ScalarNode, location: Location) -> str | None:
        """What a `!file` holds, without the line end that editors put there."""
        path = self._folder / node.value
        self.files.append(str(path))
        self.origins[location] = f"what {path} holds"
        try:
            return _read(path).rstrip("\r\n")
        except _UnreadableError as error:
            self._problem(node, location, f"a readable file {path}", str(error))
            return None

    def _sequence(self, node: Any, location: Location) -> list[Any]:
        items = []
        for at, item in enumerate(node.value):
            self.keys[(*location, at)] = self._mark(item)
            items.append(self.build(item, (*location, at)))
        return items

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if key_node.tag != "tag:yaml.org,2002:str":
                hint = (
                    f"put the key in quotes: {key!r}" if isinstance(key_node, yaml.ScalarNode) and key != "<<" else None
                )
                found = shown(key) if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                self._problem(key_node, location, "a key that is plain text", found, hint)
                continue
            place = (*location, key)
            if key in data:
                first = self.keys[place]
                self._problem(key_node, place, "each key once", f"a second one (the first is on line {first.line})")
                continue
            self.keys[place] = self._mark(key_node)
            data[key] = self.build(value_node, place)
        return data

    def _problem(
        self,
        node: yaml.Node,
        location: Location,
        expected: str,
        found: str,
        hint: str | None = None,
        *,
        offset: int = 0,
    ) -> None:
        mark = self._mark(node)
        where = (self._file, mark.line, mark.column + offset)
        self.problems.append(Problem(*where, key_path(location), expected, found, hint))

    def _mark(self, node: yaml.Node) -> Mark:
        return Mark(self._file, node.start_mark.line + 1, node.start_mark.column + 1)

    def _offset(self, node: yaml.ScalarNode, error: VariableError) -> int:
        """How far into a value a reference stands, where the value is written as it reads, on one line."""
        start = node.start_mark.index
        written = self._text[start : start + len(node.value) + 1]
        at = written.find(node.value)
        return 0 if at < 0 else at + error.at


_FILE_TAG = "!file"


def _syntax_problem(file: str, text: str, error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    said = getattr(error, "problem", None) or str(error).splitlines()[0]
    if mark is None:
        return Problem(file, 1, 1, "", f"valid YAML; the parser says: {said}")
    line = text.splitlines()[mark.line] if mark.line < len(text.splitlines()) else ""
    hint = None
    if re.search(r":\s*[>|]=?\s*\d", line):
        hint = 'put comparisons in quotes, as in step_us: ">300"'
    elif "${" in line:
        hint = 'within { } and [ ] put a variable in quotes, as in {url: "${ENGINE}"}'
    elif "\t" in line[: len(line) - len(line.lstrip())]:
        hint = "indent with spaces"
    elif re.search(r":\s*[*%@`]", line):
        hint = "put a value that begins with a special character in quotes"
    return Problem(file, mark.line + 1, mark.column + 1, "", f"valid YAML; the parser says: {said}", hint=hint)
