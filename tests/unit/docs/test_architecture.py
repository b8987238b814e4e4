"""docs/architecture.md has a place for everything at the top of the gateway, and says of rooms what is enforced."""

import re

import pytest

from tests.unit.docs.pages import REPOSITORY
from tests.unit.test_layering import ROOMS

PAGE = (REPOSITORY / "docs" / "architecture.md").read_text()
NOTHING, EVERYTHING = "nothing of ours", "all of these"


def test_it_names_every_module_beside_app_and_every_room() -> None:
    gateway = REPOSITORY / "gateway"
    modules = [f"`{file.name}`" for file in gateway.glob("*.py") if file.name != "__init__.py"]
    rooms = [f"`gateway/{file.parent.name}/`" for file in gateway.glob("*/*.py")]
    assert not [name for name in {*modules, *rooms} if name not in PAGE]


@pytest.mark.parametrize("room", ROOMS)
def test_it_says_what_a_room_may_import(room: str) -> None:
    row = re.search(rf"^\| `{room.replace('.', '/')}/` \|.*\| (.+) \|$", PAGE, re.M)
    assert row is not None
    allowed = {other.removeprefix("gateway.") for other in ROOMS[room]}
    others = {other.removeprefix("gateway.") for other in ROOMS} - {room.removeprefix("gateway.")}
    told = {NOTHING: set[str](), EVERYTHING: others}.get(row[1], set(row[1].split(", ")))
    assert told == allowed
