"""What a worker that begins later has to be told of the pools."""

import pytest

from gateway.workers.journal import Journal

ADD = ("added", "POST", "/api/v1/pools/p/replicas")
REMOVE = ("removed", "DELETE", "/api/v1/pools/p/replicas/r")
DRAIN = ("draining", "POST", "/api/v1/replicas/r/drain")
UNDRAIN = ("undrained", "POST", "/api/v1/replicas/r/undrain")


@pytest.mark.parametrize(
    ("deeds", "left"),
    [
        ([], []),
        ([ADD], ["added"]),
        ([ADD, DRAIN], ["added", "draining"]),
        ([ADD, DRAIN, DRAIN], ["added", "draining"]),
        ([ADD, DRAIN, UNDRAIN], ["added"]),
        ([ADD, DRAIN, REMOVE], []),
        # One of the configuration stays taken out.
        ([DRAIN, REMOVE], ["removed"]),
        ([REMOVE, ADD], ["added"]),
        ([DRAIN, UNDRAIN], []),
    ],
)
def test_what_was_undone_is_not_told(deeds: list[tuple[str, str, str]], left: list[str]) -> None:
    journal = Journal()
    journal.note("POST", "/api/v1/replicas/other/drain", b"", {"what": "draining", "name": "other"})
    for what, method, path in deeds:
        journal.note(method, path, b"{}", {"what": what, "name": "r"})
    journal.note("POST", "/api/v1/reload", b"", {"outcome": "applied"})
    assert [deed.what for deed in journal.deeds if deed.name == "r"] == left
    assert len(journal.deeds) == 1 + len(left)
