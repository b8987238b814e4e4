"""Where others can reach the admin port, the page asks who we are."""

import re
import sys
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from gateway.tenants.keys import digest, new_key
from tests.clients.processes import answers, free_port, running

_START_S = 60.0
LOOKING, PASSWORD = new_key(), new_key()


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway with logins, before a replica that is not there."""
    port, admin_port, nobody = free_port(), free_port(), free_port()
    file = tmp_path_factory.mktemp("login") / "gateway.yaml"
    file.write_text(f"""
listen: 127.0.0.1:{port}
admin:
  listen: 127.0.0.1:{admin_port}
  auth:
    tokens: [{{name: eye, digest: "{digest(LOOKING.encode())}"}}]
    basic: [{{name: ann, digest: "{digest(PASSWORD.encode())}", role: operate}}]
default_pool: only
pools: {{only: {{replicas: [{{url: "http://127.0.0.1:{nobody}", name: r1}}]}}}}
""")
    url = f"http://127.0.0.1:{admin_port}"
    command = [sys.executable, "-m", "gateway.cli", "serve", "-c", str(file)]
    with running("login", command, ready=answers(f"{url}/healthz"), start_s=_START_S):
        yield url


@pytest.fixture
def page(browser: Browser, admin: str) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    page.goto(admin)
    expect(page.get_by_role("heading", name="Who are you?")).to_be_visible()
    yield page
    context.close()


def log_in(page: Page, user: str, secret: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Token or password").fill(secret)
    page.get_by_role("button", name="Log in").click()


def drain(page: Page) -> None:
    page.get_by_role("button", name="Drain r1").click()
    page.get_by_label("Your name").fill("ann")
    page.get_by_label("Reason").fill("by a test")
    page.locator("#ask").get_by_role("button", name="Drain").click()


def test_a_wrong_token_is_asked_for_again(page: Page) -> None:
    log_in(page, "", "wrong")

    expect(page.get_by_role("heading", name="Who are you?")).to_be_visible()
    expect(page.locator("#live")).not_to_have_text("live")


def test_who_may_read_sees_all_and_is_offered_nothing_that_would_be_refused(page: Page, admin: str) -> None:
    log_in(page, "", LOOKING)
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#status-line")).to_contain_text("pool only has no replica that takes requests")
    expect(page.locator("#role")).to_have_text("eye: reading only")
    expect(page.get_by_role("button", name="Details of r1")).to_be_visible()
    expect(page.get_by_role("button", name="Drain r1")).to_have_count(0)

    headers = {"authorization": f"Bearer {LOOKING}"}
    refused = httpx.post(f"{admin}/api/v1/replicas/r1/drain", headers=headers, json={"author": "a", "reason": "b"})

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "read_only")


def test_who_may_operate_drains_and_undrains_and_is_still_known_after_a_reload(page: Page) -> None:
    log_in(page, "ann", PASSWORD)
    drain(page)
    row = page.get_by_role("table", name="Replicas").get_by_role("row").filter(has_text="r1")
    expect(row).to_contain_text(re.compile("draining"))

    page.reload()

    expect(row).to_contain_text(re.compile("draining"))
