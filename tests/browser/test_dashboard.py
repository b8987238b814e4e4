"""What a person on call sees and does."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import Complaints
from tests.browser.site import BOMB, EVIL, HOLDS, STRUCTURED, TITLED, Site

expect.set_options(timeout=30_000)

FOCUSED = "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
CUT_OFF = "tables => tables.filter(each => each.scrollWidth > each.clientWidth).map(each => each.ariaLabel)"
WIDTH = "document.documentElement.scrollWidth"
FIGURE = re.compile(r"\d")
_PATIENCE_MS = 30_000


def card(page: Page, pool: str) -> Locator:
    return page.get_by_role("article", name=f"Pool {pool}")


def row(page: Page, table: str, text: str) -> Locator:
    return page.get_by_role("table", name=table).get_by_role("row").filter(has_text=text)


def test_a_healthy_gateway_says_so_in_its_first_line(page: Page) -> None:
    expect(page.locator("#status-line")).to_contain_text(re.compile("Healthy|Needs a look"))
    expect(page).to_have_title(re.compile("Steplane"))


def test_each_pool_shows_its_load_its_latencies_and_where_its_steps_go(page: Page) -> None:
    for pool in ("interactive", "grammar", "quarantine"):
        expect(card(page, pool)).to_contain_text("1 up")
    interactive = card(page, "interactive")
    for label in ("requests/s", "in flight", "queued", "TTFT", "ITL", "spilled", "rejected", "failed"):
        expect(interactive).to_contain_text(label)
    expect(interactive.locator("dd").first).to_have_text(re.compile(r"^[1-9]\d*\.|^0\.\d*[1-9]"))
    expect(interactive.get_by_role("row", name="TTFT")).to_contain_text(FIGURE)
    expect(interactive.get_by_role("row", name="ITL")).to_contain_text(FIGURE)
    expect(interactive.locator(".budget-use")).to_contain_text("of 1.00 ms")
    expect(interactive.get_by_role("img")).to_have_attribute("aria-label", re.compile("hooks .* forward .* budget"))
    expect(interactive.locator("path.forward")).to_have_attribute("d", re.compile("M"))
    expect(card(page, "grammar").locator("path.hook")).to_have_attribute("d", re.compile("M"))


def test_the_charts_can_show_the_last_hour(page: Page) -> None:
    page.get_by_role("button", name="Last hour").click()

    expect(page.get_by_role("button", name="Last hour")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="Last minute")).to_have_attribute("aria-pressed", "false")


def test_each_replica_shows_its_state_its_engine_and_its_feed(page: Page) -> None:
    for name in ("interactive", "grammar", "quarantine"):
        shown = row(page, "Replicas", name).first
        expect(shown).to_contain_text("up")
        expect(shown).to_contain_text("steplane-simulator")
        expect(shown).to_contain_text("steps")

    page.get_by_label("Find").fill("grammar")

    expect(row(page, "Replicas", "interactive")).to_have_count(0)


def test_each_replica_has_its_last_minute(page: Page) -> None:
    shown = row(page, "Replicas", "interactive").first

    for label in ("TTFT p50, p99", "ITL p50, p99", "Budget used", "Req/s"):
        expect(shown.locator(f"td[data-label='{label}']")).to_contain_text(FIGURE)
    expect(shown.get_by_role("img")).to_have_attribute("aria-label", re.compile("hooks .* forward .* budget"))
    expect(shown.locator("path.forward")).to_have_attribute("d", re.compile("M"))


def test_a_replicas_details_are_opened_by_the_keyboard_and_stay_live(page: Page) -> None:
    page.get_by_role("button", name="Details of interactive").focus()
    page.keyboard.press("Enter")

    dialog = page.locator("#replica")
    expect(dialog.get_by_role("heading", name="interactive")).to_be_visible()
    for fact in ("breaker", "engine", "step times from", "ITL p50, p99", "hook budget used", "Last errors"):
        expect(dialog).to_contain_text(fact)
    drawn = dialog.locator("path.forward").get_attribute("d")
    expect(dialog.locator("path.forward")).not_to_have_attribute("d", drawn or "")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Details of interactive")).to_be_focused()


def test_a_replica_is_drained_and_gets_requests_again_by_its_buttons(page: Page, site: Site) -> None:
    shown = row(page, "Replicas", "quarantine").first
    shown.get_by_role("button", name="Drain").click()
    answer(page, "Drain")
    expect(shown).to_contain_text("draining")
    expect(page.locator("#status-line")).to_contain_text("pool quarantine has no replica that takes requests")

    shown.get_by_role("button", name="Undrain").click()
    answer(page, "Undrain")

    expect(shown.locator(".chip")).to_have_text("up")


def test_what_may_not_be_ejected_says_why(page: Page, complaints: Complaints) -> None:
    row(page, "Replicas", "grammar").first.get_by_role("button", name="Eject").click()
    page.get_by_label("Your name").fill("sre")
    page.get_by_label("Reason").fill("looks sick")
    page.locator("#ask").get_by_role("button", name="Eject").click()

    expect(page.get_by_role("alert")).to_contain_text("no other replica of the pool is up")
    page.get_by_role("button", name="Cancel").click()
    # The browser says of its own that a request was answered with 409.
    complaints[:] = [each for each in complaints if "409" not in each]


def test_a_breaker_trips_before_the_viewers_eyes_and_is_released_by_hand(page: Page, site: Site) -> None:
    signature = site.signature(BOMB)
    site.send(BOMB)

    shown = row(page, "Offenders and quarantine", signature)
    expect(shown).to_contain_text("open")
    expect(shown).to_contain_text("were over the step budget of pool 'interactive'")
    expect(shown).to_contain_text("20 top logprobs")
    expect(page.locator("#status-line")).to_contain_text("1 kind of request is quarantined")

    page.get_by_role("button", name=f"History of {signature}").click()
    dialog = page.locator("#offender")
    expect(dialog).to_contain_text("History")
    expect(dialog).to_contain_text("Last named by a replica")
    expect(dialog).to_contain_text("ask for fewer alternatives")
    page.get_by_role("button", name="Close").click()

    page.get_by_role("button", name=f"Release {signature}").click()
    answer(page, "Release")

    expect(shown).to_contain_text("let through")
    expect(page.locator("#status-line")).not_to_contain_text("quarantined")


def test_a_request_that_holds_the_step_thread_is_shown_with_its_stack(page: Page, site: Site) -> None:
    signature = site.signature(BOMB)
    site.send(BOMB)
    site.do(f"/api/v1/quarantine/{signature}/release")
    site.send(HOLDS)

    held = site.signature(HOLDS)
    shown = row(page, "Offenders and quarantine", held)
    expect(shown).to_be_visible()
    page.get_by_role("button", name=f"History of {held}").click()
    dialog = page.locator("#offender")
    expect(dialog.get_by_text("Stack of the step thread").first).to_be_visible()
    dialog.get_by_text("Stack of the step thread").first.click()
    expect(dialog.locator("pre").first).to_contain_text("replica/simulator")
    page.get_by_role("button", name="Close").click()


def test_pictures_for_the_documentation(browser: Browser, site: Site, images: Path) -> None:
    """Of a busy gateway with something in quarantine. Written by `make test-browser`."""
    site.send(STRUCTURED)
    site.send(BOMB)
    for theme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 1280, "height": 1360}, color_scheme=theme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(site.admin)
        row(page, "Offenders and quarantine", "open").first.wait_for()
        page.screenshot(path=images / f"dashboard-{theme}.png", animations="disabled")
        context.close()
    assert httpx.get(site.admin, headers={"accept": "text/html"}).status_code == httpx.codes.OK


def test_a_schema_title_that_would_be_a_program_stays_text(page: Page, site: Site) -> None:
    signature = site.signature(TITLED)
    site.do("/api/v1/quarantine", signature=signature)
    site.send(TITLED)

    shown = row(page, "Offenders and quarantine", signature)
    expect(shown).to_contain_text(EVIL)
    expect(shown.locator("img, script")).to_have_count(0)
    page.get_by_role("button", name=f"History of {signature}").click()
    expect(page.locator("#offender")).to_contain_text(EVIL)
    expect(page).not_to_have_title(re.compile("owned"))
    page.get_by_role("button", name="Close").click()
    site.do(f"/api/v1/quarantine/{signature}/release")


def test_decisions_come_by_live_with_features_and_cost_and_can_be_chosen(page: Page) -> None:
    page.get_by_role("button", name="Watch").click()
    expect(row(page, "Decisions", "interactive").first).to_contain_text("default")

    page.locator("#decision-filter").get_by_label("Rule").select_option("structured")

    expect(row(page, "Decisions", "structured").first).to_contain_text("json_schema")
    expect(row(page, "Decisions", "default")).to_have_count(0)
    expect(page.locator("#decision-table")).not_to_contain_text("nobody shall read")


def test_a_request_is_explained(page: Page) -> None:
    page.get_by_text("Explain a request").click()
    page.get_by_role("button", name="Explain").click()

    answered = page.locator("#explanation")
    expect(answered).to_contain_text("grammar by rule structured")
    expect(answered).to_contain_text("reckoned with")


def test_the_configuration_shows_what_is_in_force_and_which_rules_took_what(page: Page) -> None:
    expect(page.locator("#loaded")).to_contain_text("given at the start, no file")
    expect(row(page, "Rules, in their order", "stop-regex")).to_contain_text("none yet")
    expect(row(page, "Rules, in their order", "everything else")).to_contain_text(FIGURE)


def test_the_keyboard_reaches_everything(page: Page) -> None:
    reached: set[str] = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(FOCUSED))

    assert reached >= {"Skip to the status", "Pools", "Last hour", "Drain grammar", "Eject grammar", "Watch"}
    page.keyboard.press("Home")
    page.get_by_role("button", name="Drain grammar").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#ask")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#ask")).to_be_hidden()
    expect(page.get_by_role("button", name="Drain grammar")).to_be_focused()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault(page: Page, site: Site, theme: Any) -> None:
    page.emulate_media(color_scheme=theme)
    page.get_by_role("button", name="Watch").click()
    row(page, "Decisions", "default").first.wait_for()

    assert not serious_faults(page)
    page.get_by_role("button", name="Details of interactive").click()
    assert not serious_faults(page)


def serious_faults(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds, each with the first elements of which it says so."""
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in serious]


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, site: Site, complaints: Complaints) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740})
    context.set_default_timeout(_PATIENCE_MS)
    page = context.new_page()
    complaints.hear(page)
    page.goto(site.admin)
    card(page, "interactive").wait_for()
    page.get_by_role("button", name="Watch").click()
    row(page, "Decisions", "default").first.wait_for()

    assert page.evaluate(WIDTH) <= 360
    assert page.locator(".scroll").evaluate_all(CUT_OFF) == []
    page.get_by_role("button", name="Details of interactive").click()
    assert page.locator("#replica").evaluate("dialog => dialog.scrollWidth - dialog.clientWidth") <= 0
    assert page.evaluate(WIDTH) <= 360
    assert not complaints
    context.close()


def test_the_stream_survives_a_restart_of_the_gateway(page: Page, site: Site, complaints: Complaints) -> None:
    site.stop()
    expect(page.locator("#live")).to_contain_text("stale since")
    expect(page.locator("body")).to_have_attribute("data-stale", "")

    site.start()

    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("body")).not_to_have_attribute("data-stale", "")
    expect(card(page, "interactive").locator("path.forward")).to_have_attribute("d", re.compile("M"))
    # The browser's own word on requests that nobody answered.
    complaints[:] = [each for each in complaints if "net::ERR" not in each]


def answer(page: Page, verb: str) -> None:
    """Say who does it and why."""
    page.get_by_label("Your name").fill("sre")
    page.get_by_label("Reason").fill("by a test")
    page.locator("#ask").get_by_role("button", name=verb, exact=True).click()
    expect(page.locator("#ask")).to_be_hidden()
