"""Metrics and labels that pages, alerts and the chart speak of are those that a gateway has."""

import asyncio
import re
from functools import cache
from pathlib import Path

import pytest

from tests.unit.docs.api import labels_by_sample
from tests.unit.docs.pages import PAGES, REPOSITORY

CHART = REPOSITORY / "deploy" / "helm" / "steplane" / "templates"
RECORDED = frozenset({"steplane_pool_budget_use"})
"""By the chart's own rule for Prometheus."""
OF_PROMETHEUS = frozenset({"job", "instance"})
NAME = re.compile(r"(?<![\w./-])(steplane_[a-z_]*[a-z])(?![\w(…]|_…)(?:\{([^}]*)\})?")


@cache
def known() -> dict[str, set[str]]:
    """The labels of each name that `/metrics` may show; of a histogram its name alone, too."""
    samples = asyncio.run(labels_by_sample())
    return {name.removesuffix("_bucket"): labels for name, labels in samples.items()} | samples


@pytest.mark.parametrize("file", [*PAGES, *sorted(CHART.glob("*"))], ids=lambda file: file.name)
def test_every_metric_that_is_named_is_one(file: Path) -> None:
    for name, chosen in NAME.findall(file.read_text()):
        if name in RECORDED:
            continue
        assert name in known(), name
        labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", chosen)) or {label for label in chosen.split(",") if label}
        assert labels <= known()[name] | OF_PROMETHEUS, (name, labels)
