"""Whoever is woken by an alert finds its section in the runbook, by the link that the alert has."""

from typing import Any

import pytest
import yaml

from tests.unit.docs.pages import REPOSITORY

RUNBOOK = (REPOSITORY / "docs" / "runbook.md").read_text()
ALERTS: list[dict[str, Any]] = [
    rule
    for file in sorted((REPOSITORY / "deploy" / "alerts").glob("*.y*ml"))
    for group in yaml.safe_load(file.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
]
SECTIONS = [line.removeprefix("## ") for line in RUNBOOK.splitlines() if line.startswith("## ")]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alert_has_a_section(alert: dict[str, Any]) -> None:
    assert alert["alert"] in SECTIONS
    assert alert["annotations"]["runbook_url"].endswith(f"runbook.md#{alert['alert'].lower()}")


def test_every_section_is_for_an_alert() -> None:
    assert set(SECTIONS) == {alert["alert"] for alert in ALERTS}
