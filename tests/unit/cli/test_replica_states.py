"""One word for a replica, as the API tells of it, and what of several things that hold goes before."""

from typing import Any

import pytest

from gateway.cli.replicas import state_of
from gateway.control.dashboard.replicas import _state_of
from gateway.routing.replica import Replica


@pytest.mark.parametrize(
    ("done", "breaker", "state"),
    [
        ([], "closed", "up"),
        ([("set_healthy", False)], "closed", "down"),
        ([("drain",), ("set_healthy", False)], "closed", "draining"),
        ([("eject",), ("warm", True)], "open", "ejected"),
        ([("try_out", 1), ("warm", True)], "half_open", "trial"),
        ([("warm", True)], "closed", "warming"),
        ([("warm", True), ("rest", True)], "closed", "warming"),
        ([("warm", True), ("set_healthy", False)], "closed", "down"),
        ([("rest", True)], "closed", "resting"),
    ],
)
def test_the_command_and_the_page_have_the_same_word(done: list[tuple[Any, ...]], breaker: str, state: str) -> None:
    replica = Replica("r", "http://r:1", "r", 1, available=True)
    for what, *arguments in done:
        getattr(replica, what)(*arguments)
    told = {name: getattr(replica, name) for name in ("draining", "healthy", "resting", "warming")}
    assert state_of({**told, "breaker": {"state": breaker}}) == state
    assert _state_of(replica, {"state": breaker, "reason": ""}, None)[0] == state
