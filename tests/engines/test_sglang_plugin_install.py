"""What installing Steplane beside an engine does to the engine's environment."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.engines.build import REPOSITORY, SGLANG, VLLM, Recipe, build_environment


@pytest.mark.parametrize("recipe", [SGLANG, VLLM], ids=lambda recipe: recipe.engine)
def test_nothing_that_the_engine_has_is_changed(recipe: Recipe, tmp_path: Path) -> None:
    build_environment(recipe)
    pip = [str(recipe.python), "-m", "pip", "--disable-pip-version-check"]
    listed = subprocess.run([*pip, "list", "--format", "json"], capture_output=True, check=True)
    before = {package["name"].lower().replace("_", "-") for package in json.loads(listed.stdout)}
    report = tmp_path / "report.json"
    command = [*pip, "install", "--dry-run", "--quiet", "--report", str(report), f"{REPOSITORY}[replica]"]
    subprocess.run(command, check=True)
    planned = {
        entry["metadata"]["name"].lower().replace("_", "-") for entry in json.loads(report.read_text())["install"]
    }
    assert "steplane" in planned
    assert not planned & (before - {"steplane"})
