"""`steplane pools`, `replicas`, `tenants`, `top`, `drain` and `undrain` against a real admin port."""

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from gateway.cli.text import millis
from gateway.cli.topscreen import Shown, screen
from tests.unit.cli.ports import Running, answering, real_port
from tests.unit.control.admins import BOMB, CONFIG

Steplane = Callable[..., Any]

TENANTS = """
tenants:
  named:
    acme: {limits: {requests_per_s: 10}, priority: 5}
"""


@pytest.fixture(scope="module")
def gateway() -> Iterator[Running]:
    with real_port(CONFIG + TENANTS) as port:
        port.do(lambda admin: admin.admit("i1", "g1"))
        yield port


@pytest.fixture
def ask(gateway: Running, steplane: Steplane, monkeypatch: pytest.MonkeyPatch) -> Steplane:
    monkeypatch.setenv("STEPLANE_ADMIN", gateway.url)

    def run(*arguments: str) -> str:
        outcome = steplane(*arguments)
        assert outcome.code == 0, outcome.stderr
        return str(outcome.stdout)

    return run


def rows(text: str) -> dict[str, list[str]]:
    """The words of each line, by the first of them."""
    return {words[0]: words[1:] for words in map(str.split, text.splitlines()) if words}


def test_pools_show_who_is_up_and_what_they_may(ask: Steplane) -> None:
    shown = rows(ask("pools"))

    assert shown["interactive"] == ["1/1", "0", "0", "1.0ms", "0%"]
    assert shown["quarantine"][0] == "0/1"
    assert "nobody takes requests" in " ".join(shown["quarantine"])


def test_replicas_show_their_state(ask: Steplane) -> None:
    shown = rows(ask("replicas"))

    assert shown["i1"][:2] == ["interactive", "up"]
    assert shown["q1"][:2] == ["quarantine", "down"]
    assert set(rows(ask("replicas", "--pool", "grammar"))) == {"replica", "g1"}
    assert "no replicas" in ask("replicas", "--pool", "nowhere")


def test_tenants_show_what_they_have_left(ask: Steplane) -> None:
    acme = rows(ask("tenants"))["acme"]

    assert acme[:3] == ["0", "5", "any"]
    assert "10/s" in acme


def test_a_replica_is_drained_and_undrained(ask: Steplane) -> None:
    assert "gets nothing new" in ask("drain", "g1")
    assert rows(ask("replicas"))["g1"][1] == "draining"

    assert json.loads(ask("undrain", "g1", "--json"))["draining"] is False
    assert rows(ask("replicas"))["g1"][1] == "up"


@pytest.mark.parametrize("command", ["pools", "replicas", "tenants", "top"])
def test_json_is_what_the_api_answers(ask: Steplane, command: str) -> None:
    assert isinstance(json.loads(ask(command, "--json")), dict)


def test_top_looks_once_where_there_is_no_terminal(ask: Steplane, gateway: Running) -> None:
    gateway.do(lambda admin: admin.trip(BOMB))

    text = ask("top")

    assert rows(text)[BOMB][0] == "open"
    assert text.startswith("Steplane")


def test_top_watches_a_terminal_until_q_is_pressed(gateway: Running) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "gateway.cli", "top", "--admin", gateway.url, "--every", "0.2"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, env={**os.environ, "TERM": "xterm"}) as top:
        os.close(theirs)
        seen = b""
        for wanted, key in ((b"q quit", b"p"), (b"paused", b"p"), (b"q quit", b"q")):
            start = len(seen)
            while wanted not in seen[start:]:
                seen += os.read(ours, 65_536)
            os.write(ours, key)
        with contextlib.suppress(OSError):  # of a terminal whose last user is gone
            while os.read(ours, 65_536):
                pass
        assert top.wait(timeout=60) == 0
    os.close(ours)
    assert b"interactive" in seen


def test_a_login_is_shown_from_the_environment(steplane: Steplane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPLANE_TOKEN", "sk-secret")
    with answering(401, b"{}") as (place, asked):
        outcome = steplane("pools", "--admin", f"http://{place}")

    assert [headers["authorization"] for headers in asked] == ["Bearer sk-secret"]
    assert outcome.code == 1
    assert "STEPLANE_TOKEN" in outcome.stderr
    assert "sk-secret" not in outcome.stderr


def overview(**changed: Any) -> dict[str, Any]:
    """A document of the size of a real one, with awkward names."""
    pool = {
        "available": True, "states": {"up": 24}, "replicas": 24, "in_flight": 1234, "waiting": 87, "per_s": 1234.5,
        "ttft_p50_s": 0.081, "ttft_p99_s": 12.3, "itl_p50_us": 9000.0, "itl_p99_us": 31_000.0, "forward_us": 28_000.0,
        "hook_us": 1900.0, "budget_use": 1.9, "spills": 3.0, "rejects": 1.0,
    }  # fmt: skip
    replica = {
        "pool": "interactive", "state": "up", "in_flight": 12, "per_s": 34.2, "budget_use": 0.4, "forward_us": 9000.0,
        "hook_us": 28.0, "ttft_p99_s": 0.7, "itl_p99_us": 12_700.0, "source": "steps", "why": "",
        "last_errors": [{"at": 940.0, "kind": "first_byte_timeout", "said": "…"}],
    }  # fmt: skip
    offender = {
        "key": BOMB, "state": "open", "since": 990.0, "observed": {"steps": 3, "mean_us": 2500.0}, "tenant": "acme",
        "predicted_us": 31.0, "why": "[red]3 steps\x1b[31m", "looks": None,
    }  # fmt: skip
    return {
        "now": 1000.0,
        "gateway": {"about": {"version": "1.0", "started": 0.0, "clients": 12_345, "workers": 2}},
        "status": {"line": {"level": "bad", "findings": [{"level": "bad", "said": "x" * 200, "since": 900.0}]}},
        "pools": {"interactive": pool, "a-pool-with-a-very-long-name": pool},
        "replicas": {f"replica-{number}.interactive.svc.cluster.local:30000": replica for number in range(50)},
        "offenders": {f"signature/{number}": offender for number in range(50)},
        **changed,
    }


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 40), (120, 50)])
def test_the_screen_of_top_fits_the_terminal(width: int, height: int) -> None:
    console = Console(width=width, height=height, record=True, file=StringIO())

    console.print(screen(Shown(overview(), "http://x"), width, height))

    lines = console.export_text().rstrip("\n").split("\n")
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for wanted in ("something is wrong", "24/24", "31ms", "190%", "q quit", "more"):
        assert wanted in text
    assert "\x1b[31m" not in text


def test_a_wide_screen_shows_a_replicas_latencies_and_what_went_wrong_there_last() -> None:
    console = Console(width=160, record=True, file=StringIO())

    console.print(screen(Shown(overview(), "http://x"), 160, 40))

    text = console.export_text()
    for wanted in ("700ms", "13ms", "first byte timeout 1 min ago", "2 workers"):
        assert wanted in text


def test_the_screen_says_that_it_is_old_or_paused() -> None:
    console = Console(width=80, record=True, file=StringIO())

    console.print(screen(Shown(overview(), "http://x", stale="nothing answers"), 80, 24))
    console.print(screen(Shown(overview(), "http://x", paused=True), 80, 24))

    text = console.export_text()
    assert "old: nothing answers" in text
    assert "paused" in text


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "-"), (0.0, "0.0ms"), (0.000028, "28us"), (0.0019, "1.9ms"), (0.0311, "31ms"), (2.5, "2.5s"), (61, "61s")],
)
def test_times_are_short(seconds: float | None, said: str) -> None:
    assert millis(seconds) == said
