"""docs/architecture.md has a place for everything at the top of the gateway."""

from tests.unit.docs.pages import REPOSITORY

PAGE = (REPOSITORY / "docs" / "architecture.md").read_text()


def test_it_names_every_module_beside_app_and_every_room() -> None:
    gateway = REPOSITORY / "gateway"
    modules = [f"`{file.name}`" for file in gateway.glob("*.py") if file.name != "__init__.py"]
    rooms = [f"`gateway/{file.parent.name}/`" for file in gateway.glob("*/*.py")]
    assert not [name for name in {*modules, *rooms} if name not in PAGE]
