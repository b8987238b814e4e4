"""Somebody types what the pages say, into a shell, in front of `steplane up` of the installed wheel, and it works."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.installed import Environment, run, up
from tests.unit.docs.pages import PAGES, REPOSITORY, Command, blocks, commands, shell_lines, spoken

SIGNATURE = "s1-100967359f55d7f9"
STANDS_FOR = {
    "KEY": SIGNATURE,
    "NAME": "grammar",
    "REPLICA": "grammar",
    "BODY": "body.json",
    "FILE": "gateway.yaml",
    "new.yaml": "gateway.yaml",
    "/etc/steplane/gateway.yaml": "gateway.yaml",
}
ELSEWHERE = {
    ("up",): "is what all others are typed in front of",
    ("serve",): "tests/integration",
    ("epp",): "tests/envoy",
    ("restart",): "tests/integration/workers",
    ("replica", "launch"): "tests/engines",
    ("calibrate",): "tests/unit/calibrate",
    ("loadtest",): "tests/integration/loadtest",
    ("top",): "is looked at, not typed; tests/unit/cli",
    ("--install-completion",): "test_package.py",
}
"""Commands that take a site of their own, or long, and where they are run."""
TYPED_BY_SOMEBODY = [REPOSITORY / "README.md", REPOSITORY / "docs" / "quickstart.md"]


NAMED_ALONE = {("check",), ("check", "--against", "FILE"), ("explain",), ("drain",), ("undrain",)}
"""What a sentence may name without what it needs."""


def _is_typed(command: Command) -> bool:
    words = command.words
    return bool(words) and words not in NAMED_ALONE and not any(words[: len(each)] == each for each in ELSEWHERE)


OURS = {
    str(command): command
    for command in (*commands(), *spoken(frozenset({"steplane"})))
    if command.program == "steplane" and _is_typed(command)
}


@dataclass
class Desk:
    """A folder, a shell with the installed command, and a running gateway with its simulators."""

    folder: Path
    url: str
    admin: str
    path: str

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        here = line.replace("http://127.0.0.1:8080", self.url).replace("http://127.0.0.1:8081", self.admin)
        variables = {"PATH": self.path, "STEPLANE_ADMIN": self.admin, "API_KEY": "secret", "USER": "ann"}
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", here],
            cwd=self.folder,
            env=os.environ | variables,
            check=False,
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module")
def desk(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    [config] = [block.code for block in blocks() if block.page.name == "quickstart.md" and block.language == "yaml"]
    (folder / "gateway.yaml").write_text(config)
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}})
    for name in ("body.json", "request.json"):
        (folder / name).write_text(body)
    (folder / "decisions.ndjson").write_text("")
    path = os.pathsep.join((str(environment.command.parent), "/usr/local/bin", "/usr/bin", "/bin"))
    with up(environment, folder) as (url, admin):
        yield Desk(folder, url, admin, path)


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_command_of_ours_does_what_a_page_says(desk: Desk, name: str) -> None:
    words = list(OURS[name].words)
    words = [STANDS_FOR.get(word, desk.admin if word == "URL" else word) for word in words]
    if words[0] == "quarantine" and words[1] in ("show", "release"):
        desk.type(f"steplane quarantine add {SIGNATURE} --reason test")
    if words[:2] == ["quarantine", "add"]:
        key = words[2] if "--tenant" not in words else f"{words[2]} --tenant"
        desk.type(f"steplane quarantine release {key} --reason test")
    done = desk.type(shlex.join(["steplane", *words]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


@pytest.mark.parametrize("page", TYPED_BY_SOMEBODY, ids=lambda page: page.name)
def test_what_newcomers_type_works_in_its_order(desk: Desk, page: Path) -> None:
    """Programs of ours are above; here is what stands between them."""
    assert page in PAGES
    said = ""
    for block in blocks():
        if block.page != page:
            continue
        for _, line in shell_lines(block):
            if re.match(r"curl|echo|steplane explain", line):
                done = desk.type(line)
                assert done.returncode == 0, line + done.stderr
                said += done.stdout
    assert "x-steplane-pool: interactive" in said
    assert "data: [DONE]" in said
    if page.name == "quickstart.md":
        assert "x-steplane-pool: quarantine" in said
        assert "raw-grammar" in said


def test_the_command_says_what_it_can(environment: Environment) -> None:
    text = run(environment.command, "--help")
    named = {command.words[0] for command in OURS.values() if not command.words[0].startswith("-")}
    assert not [name for name in named if name not in text]
