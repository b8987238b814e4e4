"""docs/clients.md has every path, header and error code that clients meet, and none that there is not."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from gateway.hookcost.features import Api
from gateway.hookcost.paths import _APIS, api_of
from gateway.hookcost.pattern import FAULTS
from gateway.proxy import _code_of
from gateway.wire.failure import Failure, FailureKind
from tests.unit.docs.pages import REPOSITORY

PAGE = (REPOSITORY / "docs" / "clients.md").read_text()
OF_OPERATORS = ("control", "cli", "workers", "discovery")
"""Parts of the gateway whose errors and headers clients never meet."""
CODE_AT = {"error_reply": 2, "Refusal": 1, "Rejection": 1, "Lack": 1, "_denial": 1}
"""Where a status (always first) and a code stand among the arguments of who makes an answer."""


@cache
def sources() -> list[ast.Module]:
    files = (REPOSITORY / "gateway").rglob("*.py")
    ours = [file for file in files if not set(OF_OPERATORS) & set(file.parts)]
    return [ast.parse(file.read_text()) for file in ours]


def answers() -> Iterator[tuple[int, str]]:
    """Status and code of every answer whose are written down."""
    for source in sources():
        for node in ast.walk(source):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CODE_AT:
                status, code = node.args[0], node.args[CODE_AT[node.func.id]]
                if isinstance(status, ast.Constant) and isinstance(code, ast.Constant):
                    yield status.value, code.value
    for fault in FAULTS:
        yield 400, fault


def texts() -> Iterator[str]:
    for source in sources():
        for node in ast.walk(source):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("| ")][1:]
    return [[part.strip() for part in line.strip("|").split(" | ")] for line in lines]


def named(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


ERRORS = {
    code: {int(status) for status in re.findall(r"\d+", statuses)}
    for statuses, codes, *_ in rows("Errors")
    for code in named(codes)
}


@pytest.mark.parametrize(("status", "code"), sorted(set(answers())))
def test_every_answer_of_our_own_stands_there_with_its_status(status: int, code: str) -> None:
    assert status in ERRORS[code]


@pytest.mark.parametrize("kind", FailureKind)
def test_so_does_what_is_said_of_an_attempt_that_failed(kind: FailureKind) -> None:
    failure = Failure(kind, "")
    code = _code_of(failure)
    assert code in ERRORS
    assert not code.startswith("upstream_") or failure.status in ERRORS[code]


def test_no_error_stands_there_that_there_is_not() -> None:
    said = {code for _, code in answers()} | {_code_of(Failure(kind, "")) for kind in FailureKind} | set(texts())
    assert [code for code in ERRORS if code not in said] == []


def test_every_header_of_ours_stands_there() -> None:
    of_ours = re.compile(r"(?<![\w-])x-(?:steplane|ratelimit|request|api|real|forwarded|gateway)-[a-z-]*[a-z](?![\w-])")
    used = {header for text in texts() for header in of_ours.findall(text)}
    assert len(used) > 10
    assert not [header for header in used if f"`{header}" not in PAGE]


@pytest.mark.parametrize("title", ["Headers of a request", "Headers that engines get", "Headers of an answer"])
def test_every_header_that_stands_there_is_one_that_the_code_knows(title: str) -> None:
    known = "\n".join(file.read_text() for file in (REPOSITORY / "gateway").rglob("*.py")).lower()
    names = [name.partition(":")[0].rstrip("…") for row in rows(title) for name in named(row[0]) if "." not in name]
    assert names
    assert not [name for name in names if name not in known and "_" not in name]


def test_paths_are_taken_for_what_the_page_says() -> None:
    dialects = {"chat": Api.chat, "completions": Api.completions, "responses": Api.responses, "messages": Api.messages}
    shown: set[str] = set()
    for paths, meaning in rows("Paths")[:5]:
        dialect = dialects.get(meaning.partition(",")[0], Api.generate)
        for path in named(paths):
            assert api_of(path) is dialect
            shown.add(path)
    assert shown == set(_APIS)
