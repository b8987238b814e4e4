"""The pages, and what stands in them: blocks of code with their language, and commands."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
PAGES = sorted([*(REPOSITORY / "docs").rglob("*.md"), REPOSITORY / "README.md"])

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w+-]*) *(?P<about>[^\n]*)\n(?P<code>.*?)^(?P=indent)```", re.S | re.M
)
_INDENTED = re.compile(r"^ {4,}(?:\$ )?(steplane .*)$")
_SPAN = re.compile(r"`([^`\n]+)`")
_ASSIGNMENT = re.compile(r"[A-Z_]+=.*")
_SHELLS = frozenset(("console", "bash", "sh", "shell"))
_TO_FILES = frozenset((">", "2>", "<"))
_ENDS = frozenset(("|", ">", "2>", "&&", "||", ";", "&", "<"))


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `title` is what its info string gives it."""

    page: Path
    line: int
    language: str
    title: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """A call of a program as a page shows it: its name, without what runs it for somebody else, and its arguments."""

    page: Path
    line: int
    program: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}:{' '.join((self.program, *self.words))[:60]}"


def blocks() -> Iterator[Block]:
    """All fenced blocks of all pages."""
    for page in PAGES:
        text = page.read_text()
        for found in _FENCE.finditer(text):
            title = re.search(r'title="([^"]*)"', found["about"])
            yield Block(
                page,
                text.count("\n", 0, found.start()) + 1,
                found["language"],
                title[1] if title else "",
                textwrap.dedent(found["code"]),
            )


def commands() -> Iterator[Command]:
    """All calls of programs in blocks of a shell, those of ours in lines that are set in as code."""
    for block in blocks():
        for number, line in shell_lines(block):
            yield from _calls(block.page, number, line)
    for page, number, line in _prose():
        found = _INDENTED.match(line)
        if found is not None:
            yield from _calls(page, number, found[1])


def spans() -> Iterator[tuple[Path, int, str]]:
    """All code within sentences and tables, with page and line."""
    for page, number, line in _prose():
        for found in _SPAN.finditer(line):
            yield page, number, found[1].replace("\\|", "|")


def spoken(programs: frozenset[str]) -> Iterator[Command]:
    """Calls of these programs within sentences and tables: a name with at least one argument."""
    for page, number, text in spans():
        if text.partition(" ")[0] in programs and " " in text and "…" not in text:
            yield from _calls(page, number, text)


def shell_lines(block: Block) -> Iterator[tuple[int, str]]:
    """What is typed in a block of a shell, with its line on the page; what ends in a backslash with the line below."""
    if block.language not in _SHELLS:
        return
    waiting, began = "", 0
    for number, line in enumerate(block.code.split("\n"), 1):
        waiting, began = (waiting + line.lstrip(), began) if waiting else (line, number)
        if waiting.endswith("\\"):
            waiting = waiting[:-1]
            continue
        if block.language != "console":
            yield block.line + began, waiting
        elif waiting.startswith("$ "):
            yield block.line + began, waiting.removeprefix("$ ")
        waiting = ""


def _prose() -> Iterator[tuple[Path, int, str]]:
    """All lines that stand in no fenced block."""
    for page in PAGES:
        text = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())
        for number, line in enumerate(text.split("\n"), 1):
            yield page, number, line


def _calls(page: Path, line: int, said: str) -> Iterator[Command]:
    words = shlex.split(said.replace(";", " ; "), comments=True)
    at = 0
    while at < len(words):
        end = next((index for index in range(at, len(words)) if words[index] in _ENDS), len(words))
        call = words[at:end]
        while call and (_ASSIGNMENT.fullmatch(call[0]) or call[0] in ("sudo", "exec")):
            call = call[1:]
        # What follows a redirection is a file.
        if call and "…" not in call and (at == 0 or words[at - 1] not in _TO_FILES):
            yield Command(page, line, call[0].rpartition("/")[2], tuple(call[1:]))
        at = end + 1
