"""What the page says of a file: what is in force, what failed, which rules can't match; of several workers, too."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Complaints
from tests.clients.processes import answers, free_port, running

_START_S = 60.0
_RELOAD_S = 90.0


class Served:
    """A gateway before a replica that is not there, and its file."""

    def __init__(self, file: Path, workers: int) -> None:
        port, admin_port, nobody = free_port(), free_port(), free_port()
        self.url, self.file = f"http://127.0.0.1:{admin_port}", file
        self.command = [sys.executable, "-m", "gateway.cli", "serve", "-c", str(file), "--workers", str(workers)]
        file.write_text(f"""
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin_port}"}}
reload: {{watch: false}}
default_pool: only
pools: {{only: {{replicas: [{{url: "http://127.0.0.1:{nobody}", name: r1}}]}}}}
rules:
  - {{name: structured, when: {{grammar: any}}, pool: only}}
  - {{name: shadowed, when: {{grammar: json_schema}}, pool: only}}
""")

    def reload(self) -> httpx.Response:
        """Have the file read again."""
        return httpx.post(f"{self.url}/api/v1/reload", timeout=_RELOAD_S)


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("configured") / "gateway.yaml", request.param)
    with running("configured", served.command, ready=answers(f"{served.url}/api/v1/overview"), start_s=_START_S):
        yield served


@pytest.fixture
def page(browser: Browser, served: Served, complaints: Complaints) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    complaints.hear(page)
    page.goto(served.url)
    page.locator("#live[data-level=ok]", has_text="live").wait_for()
    yield page
    context.close()
    assert not complaints


def test_a_rule_that_can_not_match_is_to_be_seen(page: Page) -> None:
    rules = page.get_by_role("table", name="Rules, in their order")

    expect(rules.get_by_role("row").filter(has_text="shadowed")).to_contain_text("can't match")
    expect(rules.get_by_role("row").filter(has_text="any")).to_contain_text("none yet")


def test_the_last_reload_that_failed_is_shown_with_its_reason_and_stays_to_be_seen(page: Page, served: Served) -> None:
    good = served.file.read_text()
    served.file.write_text(good.replace("default_pool: only", "default_pool: onli"))
    assert served.reload().status_code == 422

    expect(page.locator("#status-line")).to_contain_text("the last reload failed, the old configuration stays in force")
    expect(page.locator("#status-line")).to_contain_text(re.compile(r"since \d\d:\d\d:\d\d"))
    expect(page.locator("#loaded")).to_contain_text("refused at")
    expect(page.locator("#loaded")).to_contain_text("onli")
    expect(page.locator("#loaded")).to_contain_text(str(served.file))

    served.file.write_text(good)
    assert served.reload().status_code == 200

    expect(page.locator("#status-line")).not_to_contain_text("reload")
    expect(page.locator("#loaded")).to_contain_text("last failed reload")
    expect(page.locator("#loaded")).to_contain_text("onli")
