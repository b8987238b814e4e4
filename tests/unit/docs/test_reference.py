"""The page that is made from the code is made from this code."""

from gateway.control.config import Config
from tests.unit.docs.reference import FILE, sections, text


def test_the_reference_is_current() -> None:
    assert FILE.read_text() == text(), "make docs-reference"


def test_it_has_every_part() -> None:
    paths = {section.path for section in sections()}
    assert {"", "pools.NAME", "pools.NAME.health", "rules[]", "timeouts", "listen[]"} <= paths
    assert next(iter(sections())).model is Config
