"""The house keeps its order: who may import whom, checked on the imports that are really there.

The table is that of docs/architecture.md. Imports for type checking count, too: knowing a type is knowing.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

ROOMS: dict[str, frozenset[str]] = {
    "gateway.wire": frozenset(),
    "gateway.hookcost": frozenset(),
    "gateway.retry": frozenset(),
    "gateway.state": frozenset({"gateway.retry"}),
    "gateway.tenants": frozenset(),
    "gateway.routing": frozenset({"gateway.hookcost"}),
    "gateway.breaker": frozenset({"gateway.hookcost"}),
    "gateway.discovery": frozenset({"gateway.retry"}),
    "gateway.feed": frozenset({"gateway.hookcost", "gateway.state"}),
}
ROOMS["gateway.control"] = frozenset(ROOMS)
# `gateway/app.py` and the modules beside it put the rooms together; `gateway/cli` starts what they made.
_ASSEMBLY = frozenset(f"gateway.{file.stem}" for file in (REPOSITORY / "gateway").glob("*.py")) - {"gateway.__init__"}
MAY_IMPORT: dict[str, frozenset[str]] = (
    ROOMS
    | {module: frozenset(ROOMS) | _ASSEMBLY for module in _ASSEMBLY}
    | {
        "gateway.workers": frozenset(ROOMS) | _ASSEMBLY,
        "gateway.epp": frozenset(ROOMS) | _ASSEMBLY,
        "gateway.cli": frozenset(ROOMS) | _ASSEMBLY | {"gateway.workers", "gateway.epp", "gateway.cli.loadtest"},
        # Starts the load test, and has nothing else to do with it.
        "gateway.cli.loadtest": frozenset({"gateway.cli", "loadtest"}),
        "gateway": frozenset(),
        "replica": frozenset(),
        "loadtest": frozenset({"replica"}),
        # Measures what a reload does to the event loop, which only shows from inside.
        "loadtest.bench_reload": frozenset(ROOMS) | _ASSEMBLY | {"loadtest"},
        # Measures classification inside one process: from outside it can't be told from the rest.
        "loadtest.bench_hookcost": frozenset({"gateway.hookcost", "gateway.control", "loadtest"}),
    }
)
PACKAGES = ("gateway", "replica", "loadtest")


@dataclass(frozen=True, slots=True)
class Import:
    file: Path
    line: int
    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(REPOSITORY)}:{self.line}: {self.importer} imports {self.imported}"


def imports_of(file: Path, source: bytes) -> Iterator[Import]:
    """Every import in `source`, at any depth, by the full name of what it imports. `file` anchors relative ones."""
    parts = file.relative_to(REPOSITORY).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    package = parts[:-1]
    for node in ast.walk(ast.parse(source, filename=str(file))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = [*package[: len(package) - node.level + 1]] if node.level else []
            base = ".".join([*origin, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(file, node.lineno, module, name)


def room_of(name: str) -> str | None:
    """The longest entry of the table that `name` lies in; None for what is not ours."""
    return max((room for room in MAY_IMPORT if f"{name}.".startswith(f"{room}.")), key=len, default=None)


def is_allowed(found: Import) -> bool:
    importer, imported = room_of(found.importer), room_of(found.imported)
    if imported is None or importer == imported:
        return True
    assert importer is not None
    # The package itself holds the version, which everything in it may show.
    if imported == "gateway" and importer.startswith("gateway."):
        return found.imported in {"gateway", "gateway.__version__"}
    return imported in MAY_IMPORT[importer]


def test_every_import_goes_the_way_the_house_allows() -> None:
    files = sorted(file for package in PACKAGES for file in (REPOSITORY / package).rglob("*.py"))
    assert files
    forbidden = [str(found) for file in files for found in imports_of(file, file.read_bytes()) if not is_allowed(found)]
    assert not forbidden, "\n" + "\n".join(forbidden)


@pytest.mark.parametrize("package", sorted(path.name for path in (REPOSITORY / "gateway").iterdir() if path.is_dir()))
def test_every_room_of_the_gateway_stands_in_the_table(package: str) -> None:
    if any((REPOSITORY / "gateway" / package).glob("*.py")):
        assert f"gateway.{package}" in MAY_IMPORT


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("gateway.wire.server", "gateway.hookcost.classify", False),
        ("gateway.wire.server", "gateway.wire.client", True),
        ("gateway.wire.server", "httptools", True),
        ("gateway.routing.router", "gateway.hookcost.features", True),
        ("gateway.routing.router", "gateway.control.config", False),
        ("gateway.feed.health", "gateway.app", False),
        ("gateway.control.admin", "gateway.routing.router", True),
        ("gateway.control.admin", "gateway.__version__", True),
        ("gateway.control.admin", "gateway.app", False),
        ("gateway.app", "gateway.control.config", True),
        ("gateway.app", "gateway.cli.up", False),
        ("gateway.cli.up", "gateway.app", True),
        ("replica.simulator.server", "gateway.hookcost", False),
        ("replica.simulator.server", "gateway", False),
        ("loadtest.wire.bench", "gateway.app", False),
        ("loadtest.wire.bench", "replica.simulator", True),
    ],
)
def test_the_table_is_read_as_it_is_meant(importer: str, imported: str, allowed: bool) -> None:
    assert is_allowed(Import(REPOSITORY / "somewhere.py", 1, importer, imported)) is allowed


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("import gateway.wire.server as s, json", ["gateway.wire.server", "json"]),
        ("from gateway import routing", ["gateway.routing"]),
        ("from . import cost", ["gateway.hookcost.cost"]),
        ("from ..wire.server import Server", ["gateway.wire.server.Server"]),
        ("def f():\n    from gateway.app import Gateway", ["gateway.app.Gateway"]),
    ],
)
def test_imports_are_found_in_every_spelling(statement: str, names: list[str]) -> None:
    file = REPOSITORY / "gateway" / "hookcost" / "imagined.py"
    assert [found.imported for found in imports_of(file, statement.encode())] == names
