"""Commands of the pages that are not ours name what there is: targets, extras, files, paths of the API, units.

Those of ours are test_snippets.py's. What is typed in the quick start is run in tests/deploy.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from gateway.control.api.openapi import openapi
from gateway.hookcost.features import Api
from gateway.hookcost.paths import api_of
from tests.unit.docs.pages import REPOSITORY, Command, blocks, commands, shell_lines, spans, spoken

MAKEFILE = (REPOSITORY / "Makefile").read_text()
TARGETS = frozenset(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.M))
VARIABLES = frozenset(re.findall(r"^([A-Z_]+) [?:]?=", MAKEFILE, re.M))
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
UNIT = (REPOSITORY / "deploy" / "systemd" / "steplane.service").read_text()
FEED_PATHS = frozenset(re.findall(r'web\.(?:get|post)\("([^"]+)"', (REPOSITORY / "replica/feed/app.py").read_text()))
MADE_BY_READERS = frozenset({"gateway.yaml", "values.yaml", "body.json", "request.json"})
ADMIN = "127.0.0.1:8081"


def make(words: tuple[str, ...]) -> None:
    for word in words:
        name, is_variable, _ = word.partition("=")
        assert name in (VARIABLES if is_variable else TARGETS)


def pip(words: tuple[str, ...]) -> None:
    verb, *rest = words
    assert verb in ("install", "show")
    for word in rest:
        found = re.fullmatch(r"(?:\.|steplane)(?:\[([\w,-]+)\])?", word)
        assert found is not None or word in ("--upgrade", "xgrammar"), word
        if found is not None and found[1]:
            assert set(found[1].split(",")) <= set(PROJECT["optional-dependencies"])


def curl(words: tuple[str, ...]) -> None:
    [url] = [word for word in words if word.startswith("http://")]
    parts = urlsplit(url)
    if parts.netloc == ADMIN:
        assert parts.path in openapi()["paths"]
    elif parts.netloc == "127.0.0.1:8080":
        assert api_of(parts.path) is not Api.other
        body = words[words.index("-d") + 1]
        assert body.startswith("@") or json.loads(body)
    else:
        # Of an engine, or of its step feed, which stands 1000 above.
        assert parts.path in (FEED_PATHS if parts.netloc.endswith(":31000") else {"/health"})


def docker(words: tuple[str, ...]) -> None:
    assert words[0] in ("build", "run", "compose")
    if words[0] != "run":
        assert (REPOSITORY / words[words.index("-f") + 1]).is_file()


def helm(words: tuple[str, ...]) -> None:
    verb, _, chart, *options = words
    assert verb in ("install", "upgrade", "package")
    assert (REPOSITORY / chart / "Chart.yaml").is_file()
    assert {option for option in options if option.startswith("-")} <= {"--namespace", "--create-namespace", "--values"}


def systemctl(words: tuple[str, ...]) -> None:
    verb, *rest = words
    assert verb in ("daemon-reload", "enable", "status", "stop", "reload", "restart")
    assert verb == "daemon-reload" or "steplane" in rest
    assert verb != "reload" or "ExecReload=" in UNIT
    assert verb != "enable" or "[Install]" in UNIT


def files(words: tuple[str, ...]) -> None:
    """Of `cp`: what is copied is in a checkout, or what readers have written."""
    for source in words[:-1]:
        assert source in MADE_BY_READERS or (REPOSITORY / source).is_file()


def anything(_: tuple[str, ...]) -> None:
    """Programs of the system's, which we can't know better than it does."""


PROGRAMS: dict[str, Callable[[tuple[str, ...]], None]] = {
    "make": make,
    "pip": pip,
    "curl": curl,
    "docker": docker,
    "helm": helm,
    "systemctl": systemctl,
    "cp": files,
    "steplane": anything,
    **dict.fromkeys(("echo", "grep", "install", "journalctl", "kubectl", "printenv", "python3.11", "py-spy"), anything),
}


def operations() -> Iterator[tuple[str, str, str]]:
    """Where a page speaks of an operation of the admin port, or of a path there; the method is `` for the latter."""
    for page, line, text in spans():
        if page.name == "api.md":
            continue  # made of the table itself
        found = re.match(r"(?:(GET|POST|DELETE) )?(/(?:api/v1|metrics|readyz|healthz)[^\s?]*)", text)
        if found is not None and "…" not in found[2]:
            yield f"{page.name}:{line}", found[1] or "", found[2]


@pytest.mark.parametrize("command", [*commands(), *spoken(frozenset(PROGRAMS))], ids=str)
def test_every_command_names_what_there_is(command: Command) -> None:
    assert command.program in PROGRAMS, "say above what is to be checked of it"
    PROGRAMS[command.program](command.words)


@pytest.mark.parametrize(("place", "method", "path"), list(operations()))
def test_every_path_of_the_admin_port_is_one(place: str, method: str, path: str) -> None:
    shape = re.sub(r"\{\w+\}|\b[A-Z]{2,}\b", "{}", path.rstrip("/"))
    known = {re.sub(r"\{\w+\}", "{}", each): set(methods) for each, methods in openapi()["paths"].items()}
    assert shape in known or (not method and any(each.startswith(f"{shape}/") for each in known)), place
    assert not method or method.lower() in known[shape], place


def test_every_line_of_a_shell_is_one_that_a_shell_takes() -> None:
    for block in blocks():
        for _, line in shell_lines(block):
            assert shlex.split(line, comments=True) or not line.strip(), str(block)
