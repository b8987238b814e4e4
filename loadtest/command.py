"""What `steplane loadtest` does: run, report and compare. Reads and writes files; the command line is elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from rich.console import Console

from loadtest.client.gatewayapi import AdminError
from loadtest.client.openloop import Target, TargetError
from loadtest.client.validation import ValidationMissingError
from loadtest.live import progress
from loadtest.report.comparison import compare
from loadtest.report.page import page
from loadtest.report.plots import PlotError
from loadtest.report.summary import markdown
from loadtest.results.run import ResultsError, Run, read
from loadtest.run import Watched, go_on, resumed
from loadtest.traffic.arrivals import TraceError
from loadtest.traffic.scenario import Scenario, ScenarioError, load
from loadtest.traffic.schemas import SchemaError


class LoadtestError(Exception):
    """It could not be done; the text says what was wrong and what to do."""


_REASONS = (
    AdminError,
    PlotError,
    ResultsError,
    ScenarioError,
    SchemaError,
    TargetError,
    TraceError,
    ValidationMissingError,
    OSError,
)


def run(
    scenario: Path, targets: Sequence[str], feeds: Sequence[str], admins: Sequence[str], out: Path, key: str = ""
) -> str:
    """Run a scenario at targets (`URL` or `URL=name`), or go on with what `out` has; the summary as Markdown.

    feeds, admins: `NAME=URL` of replicas' step feeds and gateways' admin ports. Raises LoadtestError.
    """
    try:
        wanted = [_target(text, key) for text in targets]
        watched = _watched(feeds, admins, [target.name for target in wanted])
        done = run_scenario(load(scenario), wanted, watched, out)
        return markdown(done)
    except _REASONS as error:
        raise LoadtestError(str(error)) from None


def run_scenario(scenario: Scenario, targets: Sequence[Target], watched: Mapping[str, Watched], out: Path) -> Run:
    """The same with what has been read already. Raises what its parts raise."""
    results = resumed(scenario, out)

    async def go() -> None:
        async with progress(Console(stderr=True)) as show:
            await go_on(results, scenario, targets, watched, out, show)

    uvloop.run(go())
    return results


def report(results: Path, html: Path, summary: Path | None) -> None:
    """Write the page, and the summary where one is wanted. Raises LoadtestError."""
    try:
        found = read(results)
        html.write_text(page(found), encoding="utf-8")
        if summary is not None:
            summary.write_text(markdown(found), encoding="utf-8")
    except _REASONS as error:
        raise LoadtestError(str(error)) from None


def comparison(before: Path, after: Path) -> str:
    """Two results files side by side, as Markdown. Raises LoadtestError."""
    try:
        return compare(read(before), read(after))
    except _REASONS as error:
        raise LoadtestError(str(error)) from None


def _target(text: str, key: str) -> Target:
    url, _, name = text.partition("=") if "?" not in text else (text, "", "")
    return Target(name or urlsplit(url).netloc or url, url, key)


def _watched(feeds: Sequence[str], admins: Sequence[str], names: Sequence[str]) -> dict[str, Watched]:
    if len(set(names)) < len(names):
        raise TargetError(f"two targets have one name: {', '.join(names)}; name them: --target URL=name")
    by_name: dict[str, Watched] = {}
    for option, texts in (("--feed", feeds), ("--admin", admins)):
        for text in texts:
            name, _, url = text.partition("=")
            if name not in names or not url:
                raise TargetError(f"{option} {text}: expected NAME=URL, NAME one of {', '.join(names)}")
            old = by_name.get(name, Watched())
            new = replace(old, feeds=(*old.feeds, url)) if option == "--feed" else replace(old, admin=url)
            by_name[name] = new
    return by_name
