"""One browser, one gateway under load, and a page that may not complain."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.browser.site import Site, busy

_PATIENCE_MS = 30_000
_IMAGES = Path(__file__).resolve().parents[2] / "docs" / "img"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = os.environ.get("STEPLANE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail("no Chromium: install Debian's package `chromium`, or name one by STEPLANE_CHROMIUM")
    with sync_playwright() as playwright:
        # No sandbox: it shows our own pages only, and in a container there may be none to be had.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    site = Site()
    try:
        site.start()
        with busy(site):
            yield site
    finally:
        site.stop()


class Complaints(list[str]):
    """What a page has written to its console, or failed with."""

    def hear(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.append(str(error)))
        page.on("console", self._said)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.append(message.text)


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def page(browser: Browser, site: Site, complaints: Complaints) -> Iterator[Page]:
    """The dashboard, live. Nothing may be amiss in its console at the end."""
    context = browser.new_context(viewport={"width": 1360, "height": 900}, color_scheme="light")
    context.set_default_timeout(_PATIENCE_MS)
    page = context.new_page()
    complaints.hear(page)
    page.goto(site.admin)
    page.locator("#live[data-level=ok]", has_text="live").wait_for()
    yield page
    context.close()
    assert not complaints


@pytest.fixture(scope="session")
def images() -> Path:
    """Where the pictures of the documentation are."""
    _IMAGES.mkdir(parents=True, exist_ok=True)
    return _IMAGES
