"""Every YAML of the documentation is a configuration that `steplane check` takes, every command one that there is."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from gateway.cli.commands import app
from gateway.control.config import Config, load_config
from gateway.control.document import parse_document
from gateway.control.problem import ConfigError
from tests.unit.docs.pages import PAGES, REPOSITORY, Block, Command, blocks, commands, spoken

# Blocks with a title are what it says; tests/deploy/test_docs.py gives those to whom they are for.
YAML = [block for block in blocks() if block.language in ("yaml", "yml") and not block.title]
COMMANDS = [each for each in commands() if each.program == "steplane"]
SPOKEN = [each for each in spoken(frozenset({"steplane"})) if each.program == "steplane"]
LINKS = [
    (page, link)
    for page in PAGES
    for link in re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S))
    if "://" not in link and not link.startswith("mailto:")
]
_MISSING = re.compile("No such file|is not there")


def whole(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a configuration as a whole one: with the pools that it speaks of."""
    found = dict(part)
    pools = dict(found.get("pools") or {})
    for name in {"interactive", *_pools_named(part)}:
        pools.setdefault(name, {})
    for number, (name, pool) in enumerate(pools.items(), 1):
        pool = dict(pool)
        if not pool.get("replicas") and not pool.get("discover"):
            pool["replicas"] = [f"http://10.9.0.{number}:30000"]
        pools[name] = pool
    found["pools"] = pools
    found.setdefault("default_pool", "interactive")
    return found


def _pools_named(value: object) -> set[str]:
    named: set[str] = set()
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in ("pool", "spill", "quarantine_pool", "default_pool") and isinstance(inner, str):
                named.add(inner)
            elif key in ("fallbacks", "cheapest_backend", "pools") and isinstance(inner, list):
                named.update(inner)
            else:
                named |= _pools_named(inner)
    elif isinstance(value, list):
        for inner in value:
            named |= _pools_named(inner)
    return named


def parts(block: Block) -> dict[str, Any] | None:
    """What a block says, if it is a configuration or parts of one: keys from its top, or one pool's."""
    code = re.sub(r"!file (\S+)", r"\1", block.code).replace("sha256:…", f"sha256:{'0' * 64}")
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)", code), "1")
    loaded = parse_document(str(block), code, variables).data
    if isinstance(loaded, list) and all(isinstance(each, dict) and "name" in each for each in loaded):
        return {"rules": loaded}
    if not isinstance(loaded, dict):
        return None
    if set(loaded) <= set(Config.model_fields):
        return loaded
    if set(loaded) <= {"interactive", "grammar", "quarantine", "canary"}:
        return {"pools": loaded}
    return None


@pytest.mark.parametrize("block", YAML, ids=str)
def test_every_yaml_is_a_configuration(block: Block, tmp_path: Path) -> None:
    part = parts(block)
    assert part is not None, f"no part of a configuration; a title says what else it is:\n{block.code}"
    file = tmp_path / "gateway.yaml"
    for name in (part.get("include") or [])[:]:
        if "*" not in name:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("{}\n")
    file.write_text(yaml.safe_dump(whole(part), sort_keys=False))
    try:
        load_config(file, {})
    except ConfigError as error:
        # Certificates and keys that a page names are not there.
        wrong = [problem for problem in error.problems if not _MISSING.search(str(problem))]
        assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("command", [*COMMANDS, *SPOKEN], ids=str)
def test_every_command_is_one(command: Command) -> None:
    found: Any = typer.main.get_command(app)
    # What stands before a command is done as soon as it is read: completion would be installed here.
    if command.words and command.words[0] in {name for option in found.params for name in option.opts}:
        return
    words = list(command.words)
    try:
        context = found.make_context("steplane", words)
        while hasattr(found, "resolve_command"):
            rest = [*context._protected_args, *context.args]
            if not rest:
                break
            name, found, words = found.resolve_command(context, rest)
            context = found.make_context(name, words, parent=context)
    except typer.Exit:
        return
    except Exception as error:
        # A sentence may name a command without all that it needs. (Typer has that class to itself.)
        if type(error).__name__ == "MissingParameter" and command in SPOKEN:
            return
        pytest.fail(f"{command}: {getattr(error, 'message', error)!s}")


@pytest.mark.parametrize(("page", "link"), LINKS, ids=lambda each: getattr(each, "name", str(each)))
def test_every_link_leads_somewhere(page: Path, link: str) -> None:
    assert (page.parent / link).exists(), f"{page.relative_to(REPOSITORY)} links to {link}"
