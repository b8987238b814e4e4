"""What an engine of a pool is started with."""

import sys

import pytest

from replica.launcher import LaunchError, load_profile, plan, profiles_folder

POOLS = ("interactive", "grammar", "logprobs", "quarantine")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("pool", POOLS)
def test_every_pool_has_a_profile_that_says_why(pool: str, engine: str) -> None:
    profile = load_profile(pool, engine)
    assert profile.flags
    assert all(len(setting.why) > 20 for setting in (*profile.flags, *profile.variables))
    assert all(setting.name.startswith("--") for setting in profile.flags)


def test_no_profile_is_without_a_test() -> None:
    assert {path.stem for path in profiles_folder().glob("*.yaml")} == set(POOLS)


def test_flags_alone_become_a_whole_command() -> None:
    launch = plan("grammar", "sglang", ["--model-path", "m"], {})
    assert launch.command[:5] == (sys.executable, "-m", "sglang.launch_server", "--model-path", "m")
    assert launch.command[5:7] == ("--grammar-backend", "steplane-xgrammar")
    assert launch.variables["STEPLANE_STEP_BUDGET_US"] == "2000"
    assert any(note.startswith("--grammar-backend steplane-xgrammar: ") for note in launch.notes)


@pytest.mark.parametrize(
    ("command", "engine_flag"),
    [
        (["sglang", "serve", "--model-path", "m"], "--grammar-backend"),
        (["python3", "-m", "sglang.launch_server"], "--grammar-backend"),
        (["vllm", "serve", "m"], "--max-num-seqs"),
        (["/opt/venv/bin/vllm", "serve", "m"], "--max-num-seqs"),
    ],
)
def test_a_whole_command_says_itself_which_engine_it_is(command: list[str], engine_flag: str) -> None:
    launch = plan("grammar", None, command, {})
    assert list(launch.command[: len(command)]) == command
    assert engine_flag in launch.command


@pytest.mark.parametrize(
    "given", [["--grammar-backend", "outlines"], ["--grammar-backend=outlines"], ["--grammar_backend=outlines"]]
)
def test_what_the_user_wrote_wins(given: list[str]) -> None:
    launch = plan("grammar", "sglang", given, {"STEPLANE_STEP_BUDGET_US": "7"})
    assert "steplane-xgrammar" not in launch.command
    assert "STEPLANE_STEP_BUDGET_US" not in launch.variables
    assert "--grammar-backend: as you wrote it; the profile 'grammar' has steplane-xgrammar" in launch.notes


def test_what_is_printed_can_be_pasted() -> None:
    launch = plan("quarantine", "sglang", ["--model-path", "a b"], {})
    *notes, line = launch.text().splitlines()
    assert all(note.startswith("# ") for note in notes)
    assert "'a b'" in line
    assert line.startswith("STEPLANE_HARD_LIMIT_MS=5000 ")


def test_an_unknown_pool_is_answered_with_those_there_are() -> None:
    with pytest.raises(LaunchError, match="there are: grammar, interactive, logprobs, quarantine"):
        plan("nowhere", "sglang", [], {})


def test_a_command_that_names_no_engine_needs_to_be_told() -> None:
    with pytest.raises(LaunchError, match="--engine"):
        plan("grammar", None, ["my-server", "--x"], {})
