"""The Grafana dashboard and the alerts ask for metrics and labels that a gateway really has."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.docs.api import labels_by_sample

REPOSITORY = Path(__file__).resolve().parents[3]
DASHBOARD = REPOSITORY / "deploy/grafana/steplane.json"
ALERTS = REPOSITORY / "deploy/alerts/steplane.rules.yaml"
RUNBOOK = REPOSITORY / "docs/runbook.md"

OF_PROMETHEUS = {"job", "instance"}
"""Labels that every metric gets when it is scraped."""
_WORDS = frozenset({"by", "on", "and", "or", "unless", "without", "ignoring", "group_left", "vector", "bool"})
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)")


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics that an expression of PromQL asks for, each with the labels by which it chooses."""
    text = _GROUPING.sub(" ", _STRING.sub('""', expression))
    text = re.sub(r"\[[^\]]*\]", " ", text)
    for found in _SELECTOR.finditer(text):
        name, chosen = found[1], found[2] or ""
        if name in _WORDS or text[found.end() :].lstrip().startswith("(") or text[: found.start()].endswith(("{", ",")):
            continue
        yield name, set(_LABEL.findall(chosen))


def grouped(expression: str) -> set[str]:
    """The labels by which an expression puts together."""
    text = _STRING.sub('""', expression)
    return {label.strip() for labels in _GROUPING.findall(text) for label in labels.split(",") if label.strip()}


@pytest.fixture
async def known() -> dict[str, set[str]]:
    """The labels of each sample, by its name."""
    return {"up": set()} | await labels_by_sample()


def check(expression: str, known: dict[str, set[str]]) -> set[str]:
    """The labels that an expression's result may have. Fails for what does not exist."""
    found: set[str] = set(OF_PROMETHEUS)
    asked = list(selectors(expression))
    assert asked, f"asks for nothing: {expression}"
    for name, chosen in asked:
        assert name in known, f"there is no {name}: {expression}"
        assert chosen <= known[name] | OF_PROMETHEUS, f"{name} has no {chosen - known[name]}: {expression}"
        found |= known[name]
    assert grouped(expression) <= found, f"nothing has {grouped(expression) - found}: {expression}"
    return grouped(expression) or found


def panels() -> list[dict[str, Any]]:
    return [each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] != "row"]


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def test_the_names_in_expressions_are_found() -> None:
    expression = 'sum by (a, le) (rate(x_bucket{b=~"c d", e!="f"}[$__rate_interval])) / on (g) max(y) > 0 and z{h="i"}'

    assert list(selectors(expression)) == [("x_bucket", {"b", "e"}), ("y", set()), ("z", {"h"})]
    assert grouped(expression) == {"a", "le", "g"}


async def test_every_panel_asks_for_what_there_is(known: dict[str, set[str]]) -> None:
    for panel in panels():
        for target in panel["targets"]:
            labels = check(target["expr"].replace("$__rate_interval", "5m"), known)
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown <= labels, f"{panel['title']}: {shown - labels} is not in what comes of {target['expr']}"


async def test_the_variables_of_the_dashboard_ask_for_what_there_is(known: dict[str, set[str]]) -> None:
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
            assert label in known[metric] | OF_PROMETHEUS


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    all_panels = json.loads(DASHBOARD.read_text())["panels"]
    places = [
        (x, y)
        for each in all_panels
        for x in range(each["gridPos"]["x"], each["gridPos"]["x"] + each["gridPos"]["w"])
        for y in range(each["gridPos"]["y"], each["gridPos"]["y"] + each["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24
    assert len({each["id"] for each in all_panels}) == len(all_panels)


async def test_every_alert_asks_for_what_there_is(known: dict[str, set[str]]) -> None:
    for alert in alerts():
        labels = check(alert["expr"], known)
        for text in alert["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels, alert["alert"]


async def test_the_page_of_metrics_names_what_there_is(known: dict[str, set[str]]) -> None:
    named = set(re.findall(r"`(steplane_\w*[a-z])`", (REPOSITORY / "docs/metrics.md").read_text()))
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known}
    assert named - families == set()


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in RUNBOOK.read_text().splitlines()
        if line.startswith("#")
    }
    for alert in alerts():
        assert alert["labels"]["severity"] in ("page", "ticket")
        page, _, place = alert["annotations"]["runbook_url"].partition("#")
        assert page == "docs/runbook.md"
        assert place == alert["alert"].lower()
        assert place in headings, f"docs/runbook.md has no {alert['alert']}"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_takes_the_alerts() -> None:
    found = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, check=False)

    assert found.returncode == 0, found.stdout + found.stderr
