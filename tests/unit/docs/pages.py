"""The pages, and what stands in them: blocks of code with their language, and commands of ours."""

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
_SHELLS = frozenset(("console", "bash", "sh", "shell"))
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
    """A call of `steplane` as a page shows it."""

    page: Path
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}:{' '.join(self.words)[:60]}"


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
    """All calls of `steplane` in blocks of a shell, and in lines that are set in as code."""
    for block in blocks():
        if block.language in _SHELLS:
            for number, line in _lines(block.code):
                said = line.removeprefix("$ ") if block.language == "console" else line
                if block.language != "console" or line.startswith("$ "):
                    yield from _ours(block.page, block.line + number, said)
    for page in PAGES:
        for number, line in enumerate(
            _FENCE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text()).split("\n"), 1
        ):
            found = _INDENTED.match(line)
            if found is not None:
                yield from _ours(page, number, found[1])


def _lines(code: str) -> Iterator[tuple[int, str]]:
    """Lines, those that end in a backslash joined with the next."""
    waiting, began = "", 0
    for number, line in enumerate(code.split("\n"), 1):
        waiting, began = (waiting + line.lstrip(), began) if waiting else (line, number)
        if waiting.endswith("\\"):
            waiting = waiting[:-1]
            continue
        yield began, waiting
        waiting = ""


def _ours(page: Path, line: int, said: str) -> Iterator[Command]:
    if "steplane" not in said:
        return
    words = shlex.split(said.replace(";", " ; "), comments=True)
    at = 0
    while at < len(words):
        end = next((index for index in range(at, len(words)) if words[index] in _ENDS), len(words))
        call = words[at:end]
        while call and (re.fullmatch(r"[A-Z_]+=.*", call[0]) or call[0] in ("sudo", "exec")):
            call = call[1:]
        if call and call[0].rpartition("/")[2] == "steplane" and "…" not in call:
            yield Command(page, line, tuple(call[1:]))
        at = end + 1
