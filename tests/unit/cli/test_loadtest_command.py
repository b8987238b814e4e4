"""`steplane loadtest`, as far as nothing is sent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_results_that_are_not_there_are_a_clear_error(steplane: Callable[..., Any], tmp_path: Path) -> None:
    ended = steplane("loadtest", "report", tmp_path / "none.json")
    assert ended.code == 1
    assert "none.json: No such file or directory; expected what `steplane loadtest run` has written" in ended.stderr


def test_a_scenario_that_is_not_there_is_told_with_those_that_are_shipped(
    steplane: Callable[..., Any], tmp_path: Path
) -> None:
    ended = steplane("loadtest", "run", "nothing", "--target", "http://127.0.0.1:1", "--out", tmp_path / "r.json")
    assert ended.code == 1
    assert "isolation" in ended.stderr
    assert not (tmp_path / "r.json").exists()
