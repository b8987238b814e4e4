import resource
import subprocess
import sys

PROGRAM = "from gateway.cli.openfiles import allow_open_files; print(allow_open_files())"


def limited(soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    """What a process says that was started with these limits."""
    return subprocess.run(
        [sys.executable, "-c", f"{PROGRAM}; import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_limit_of_open_files_is_raised_as_far_as_it_goes() -> None:
    assert limited(256, 8000).stdout.split() == ["8000", "8000", "8000"]
    assert limited(8000, 8000).stdout.split() == ["8000", "8000", "8000"]


def test_a_limit_that_is_low_all_the_same_is_warned_of() -> None:
    ended = limited(256, 512)
    assert "few_open_files" in ended.stdout
    assert "LimitNOFILE" in ended.stdout
    assert "few_open_files" not in limited(256, 8000).stdout
