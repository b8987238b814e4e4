import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.wire.filestamps import FileStamps


def replaced(file: Path) -> None:
    """By another of the same size and time, as tools do that want nobody to see half a file."""
    found = file.stat()
    beside = file.with_suffix(".new")
    beside.write_text("later")
    os.utime(beside, ns=(found.st_atime_ns, found.st_mtime_ns))
    beside.replace(file)


def rewritten(file: Path) -> None:
    """At once: its time need not tell."""
    found = file.stat()
    file.write_text("much later")
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.mark.parametrize("change", [
    replaced,
    rewritten,
    lambda file: os.utime(file, ns=(0, 0)),
    lambda file: file.unlink(),
])  # fmt: skip
def test_a_change_is_told_once(tmp_path: Path, change: Callable[[Path], None]) -> None:
    other, file = tmp_path / "other", tmp_path / "file"
    other.write_text("other")
    file.write_text("first")
    stamps = FileStamps([other, file])
    assert not stamps.changed()
    change(file)
    assert stamps.changed()
    assert not stamps.changed()


def test_a_file_that_comes_is_a_change(tmp_path: Path) -> None:
    file = tmp_path / "file"
    stamps = FileStamps([str(file)])
    assert not stamps.changed()
    file.write_text("here")
    assert stamps.changed()


def test_what_a_link_leads_to_is_what_counts(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "..data").symlink_to("old")
    stamps = FileStamps([tmp_path / "..data" / "file"])
    (tmp_path / "other").symlink_to("new")
    (tmp_path / "other").replace(tmp_path / "..data")
    assert stamps.changed()
