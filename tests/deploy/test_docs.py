"""The site builds without a warning, and what its pages show for others than the gateway is right, too."""

import os
import subprocess
import sys
from pathlib import Path

import helm_python as helm
import pytest
import yaml

from tests.unit.docs.pages import REPOSITORY, Block, blocks

CHART = REPOSITORY / "deploy" / "helm" / "steplane"
VALUES = [block for block in blocks() if block.title == "values.yaml"]


def test_the_site_builds_and_no_link_of_it_leads_nowhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "quickstart" / "index.html").is_file()


@pytest.mark.parametrize("block", VALUES, ids=str)
def test_the_chart_takes_the_values_of_the_pages(block: Block) -> None:
    with helm.Chart.load(str(CHART)) as chart:
        assert chart.render(yaml.safe_load(block.code), name="demo", namespace="llm")


def test_other_yaml_is_at_least_yaml() -> None:
    others = [block for block in blocks() if block.language == "yaml" and block.title]
    assert others
    for block in others:
        assert all(yaml.safe_load_all(block.code)), str(block)
