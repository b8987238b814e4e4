"""The page of the API is made from this code, and shows all of what the code has."""

import re

from gateway.control.api.operations import OPERATIONS
from tests.unit.docs.api import FILE, text
from tests.unit.docs.pages import REPOSITORY


def test_the_page_of_the_api_is_current() -> None:
    assert FILE.read_text() == text(), "make docs-reference"


def test_it_has_every_operation() -> None:
    shown = re.findall(r"^### `(\w+) (\S+)`", text(), re.M)
    assert sorted(shown) == sorted((each.method, each.path) for each in OPERATIONS)


def test_it_has_every_metric_that_the_code_names() -> None:
    written = {
        name
        for file in (REPOSITORY / "gateway").rglob("*.py")
        for name in re.findall(r'^\s+"(steplane_\w+)",|MetricFamily\("(steplane_\w+)"', file.read_text(), re.M)
        for name in name
        if name
    }
    page = text()
    assert len(written) > 50
    assert not [name for name in written if f"`{name}`" not in page and f"`{name}_total`" not in page]
