"""`steplane serve --workers`, and the commands around it, as far as they can be wrong."""

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Steplane

CONFIG = "default_pool: a\npools:\n  a: {replicas: [http://127.0.0.1:1]}\n"


@pytest.mark.parametrize("workers", ["0", "-1", "two", "1.5", "257", "9999999999"])
def test_a_number_of_workers_that_is_none_is_named_with_what_was_expected(
    steplane: Steplane, tmp_path: Path, workers: str
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(CONFIG)

    outcome = steplane("serve", "-c", str(file), f"--workers={workers}")

    assert outcome.code == 2
    assert f"--workers {workers}: expected a whole number from 1 to 256, or auto" in outcome.stderr


@pytest.mark.parametrize("workers", ["0", "two", "1.5", "true", "[2]"])
def test_so_is_one_in_the_file_with_its_line(steplane: Steplane, tmp_path: Path, workers: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(f"workers: {workers}\n{CONFIG}")

    outcome = steplane("check", "-c", str(file))

    assert outcome.code == 1
    assert f"{file}:1:10: workers: expected a whole number from 1 to 256, or auto" in outcome.stderr


@pytest.mark.parametrize("workers", ["1", "16", "auto"])
def test_a_number_and_auto_are_good(steplane: Steplane, tmp_path: Path, workers: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(f"workers: {workers}\n{CONFIG}")

    assert steplane("check", "-c", str(file)).code == 0


def test_a_worker_is_not_started_by_hand(steplane: Steplane) -> None:
    outcome = steplane("worker", "--channel=999")

    assert outcome.code == 1
    assert "`steplane serve --workers N`" in outcome.stderr


def test_a_restart_of_what_does_not_run_says_where_nothing_answers(steplane: Steplane) -> None:
    outcome = steplane("restart", "--admin", "http://127.0.0.1:1")

    assert outcome.code == 1
    assert "nothing answers at http://127.0.0.1:1" in outcome.stderr
