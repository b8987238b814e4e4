"""`steplane quarantine` against a real admin port, which runs on a thread of its own."""

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.cli.failure import CliError
from gateway.cli.quarantine import seconds
from tests.unit.cli.ports import Running, answering, real_port
from tests.unit.control.admins import BOMB, OTHER, Admin

Steplane = Callable[..., Any]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """One for all tests of this file; each one uses other keys, or leaves nothing behind."""
    with real_port() as port:
        yield port


@pytest.fixture
def gateway(running: Running) -> Running:
    """Nothing is quarantined."""

    def release_all(admin: Admin) -> None:
        for record in admin.context.trust.snapshot():
            admin.context.trust.release(record.kind, record.key, "test", "begin anew")

    running.do(release_all)
    return running


@pytest.fixture
def quarantine(gateway: Running, steplane: Steplane, monkeypatch: pytest.MonkeyPatch) -> Steplane:
    """Runs `steplane quarantine ARGUMENTS` as the user `sre` against that gateway."""
    monkeypatch.setenv("USER", "sre")
    monkeypatch.setenv("STEPLANE_ADMIN", gateway.url)

    def run(*arguments: str) -> Any:
        return steplane("quarantine", *arguments)

    return run


def words(text: str) -> str:
    """Without the line breaks of a table."""
    return " ".join(text.split())


def test_an_empty_list_says_so(quarantine: Steplane) -> None:
    outcome = quarantine("list")

    assert (outcome.code, outcome.stdout) == (0, "Nothing is quarantined.\n")


def test_the_list_says_what_since_when_until_when_and_why(gateway: Running, quarantine: Steplane) -> None:
    gateway.do(lambda admin: admin.trip(BOMB))
    gateway.do(lambda admin: setattr(admin, "now_s", admin.now_s + 12))

    outcome = quarantine("list")

    said = words(outcome.stdout)
    assert outcome.code == 0
    assert f"{BOMB} open 12 s ago" in said
    assert "in 18 s" in said
    assert "3 steps within 10 s" in said


def test_json_is_what_the_api_answers(gateway: Running, quarantine: Steplane) -> None:
    gateway.do(lambda admin: admin.trip(BOMB))

    listed = json.loads(quarantine("list", "--json").stdout)
    shown = json.loads(quarantine("show", BOMB, "--json").stdout)

    assert [each["key"] for each in listed["quarantined"]] == [BOMB]
    assert shown["record"]["trip"]["times_over"] == 2.6


def test_a_list_that_is_cut_says_how_many_are_left_out(gateway: Running, quarantine: Steplane) -> None:
    gateway.do(lambda admin: [admin.trip(f"s1-{number:016x}", tenant="") for number in range(16, 21)])

    assert "3 more; --limit shows them" in quarantine("list", "--limit", "2").stdout


def test_one_is_shown_with_all_that_an_operator_asks(gateway: Running, quarantine: Steplane) -> None:
    gateway.do(lambda admin: admin.trip(OTHER, tenant="acme[corp]"))
    gateway.do(lambda admin: admin.run(OTHER, tenant="acme[corp]"))

    said = words(quarantine("show", OTHER).stdout)

    assert f"signature {OTHER} state open since 1970-01-12" in said
    assert "up to 2.6 ms of hook time, 2.6 times the budget of 1 ms, mostly by grammar_fill" in said
    assert "tenant acme[corp]" in said
    assert "to fix it make the grammar cheaper" in said
    assert "what it costs" in said
    assert "what runs of it now" in said
    assert "breaker trip open 3 steps within 10 s" in said


def test_names_that_clients_chose_do_nothing_to_the_terminal(gateway: Running, quarantine: Steplane) -> None:
    key = "s1-00000000000000d0"
    gateway.do(lambda admin: admin.trip(key, tenant="[red]\x9b31m\x07"))

    said = quarantine("show", key).stdout

    assert r"[red]\x9b31m\x07" in said
    assert "\x9b" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), ", in 30 s."),
        (("--for", "10m"), ", in 10 min."),
        (("--pin",), "until somebody releases it."),
    ],
)
def test_quarantine_by_hand_says_until_when(quarantine: Steplane, options: tuple[str, ...], said: str) -> None:
    outcome = quarantine("add", BOMB, "--reason", "floods us", *options)

    assert outcome.code == 0
    assert outcome.stdout.startswith(f"{BOMB} is quarantined until ")
    assert outcome.stdout.endswith(f"{said}\n")
    assert "by sre: floods us" in words(quarantine("list").stdout)


def test_the_log_tells_who_did_what_to_whom_newest_first(gateway: Running, quarantine: Steplane) -> None:
    gateway.do(lambda admin: setattr(admin, "now_s", admin.now_s + 3600))
    gateway.do(lambda admin: admin.trip(BOMB))
    gateway.do(lambda admin: setattr(admin, "now_s", admin.now_s + 1))
    quarantine("add", "acme", "--tenant", "--reason", "floods us")

    said = words(quarantine("log", "--limit", "2").stdout)

    assert f"0 s ago tenant acme sre add open floods us 1 s ago {BOMB} breaker trip open 3 steps" in said
    assert "more; --limit shows them" in said
    assert len(json.loads(quarantine("log", "--limit", "2", "--json").stdout)["entries"]) == 2


def test_what_runs_of_it_is_counted(gateway: Running, quarantine: Steplane) -> None:
    key = "s1-00000000000000c0"
    gateway.do(lambda admin: admin.run(key))

    said = quarantine("add", key, "--reason", "floods us").stdout

    assert "1 request of it was running" in said


def test_a_tenant_is_added_shown_and_released_by_its_name(quarantine: Steplane) -> None:
    added = quarantine("add", "acme/eu", "--tenant", "--reason", "floods us", "--author", "kim")
    shown = quarantine("show", "acme/eu")
    released = quarantine("release", "acme/eu", "--reason", "they have fixed it")

    assert (added.code, shown.code, released.code) == (0, 0, 0)
    assert added.stdout.startswith("tenant acme/eu is quarantined until ")
    assert "by kim: floods us" in words(shown.stdout)
    assert released.stdout.startswith("tenant acme/eu is released")
    assert "they have fixed it" in quarantine("show", "acme/eu").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "s1-00000000000000ff"), "nothing is known of 's1-00000000000000ff'"),
        (("release", BOMB, "--reason", "r"), "is not quarantined"),
        (("add", "acme", "--reason", "r"), "'acme' is no cost signature"),
        (("add", BOMB, "--reason", " "), "reason: expected some text"),
        (("add", BOMB, "--reason", "r", "--author", "breaker"), "author: expected the name of a person"),
        (("add", BOMB, "--reason", "r", "--for", "soon"), "--for soon: expected a duration such as"),
        (("add", BOMB, "--reason", "r", "--for", "10m", "--pin"), "--for and --pin exclude each other"),
        (("list", "--admin", "ftp://h"), "expected a URL such as http://127.0.0.1:8081"),
        (("list", "--admin", "http://[::1"), "--admin http://[::1:"),
    ],
)
def test_what_can_not_be_done_is_one_line_with_exit_code_1(
    quarantine: Steplane, arguments: tuple[str, ...], said: str
) -> None:
    outcome = quarantine(*arguments)

    assert (outcome.code, outcome.stdout, outcome.stderr.count("\n")) == (1, "", 1)
    assert outcome.stderr.startswith("steplane: ")
    assert said in outcome.stderr


def test_explain_asks_a_running_gateway_what_it_has_learned(
    gateway: Running, steplane: Steplane, quarantine: Steplane
) -> None:
    body = b'{"messages": [], "logprobs": true, "top_logprobs": 7}'
    ask = ("explain", "-", "--admin", gateway.url)
    gateway.do(lambda admin: admin.admit("i1", "g1", "q1"))
    key = json.loads(steplane(*ask, "--json", stdin=body).stdout)["signature"]
    gateway.do(lambda admin: admin.trip(key))

    of_signature = steplane(*ask, stdin=body)
    quarantine("release", key, "--reason", "done")
    quarantine("add", "acme", "--tenant", "--reason", "floods us")
    of_tenant = steplane(*ask, "--tenant", "acme", stdin=body)

    assert (of_signature.code, of_tenant.code) == (0, 0)
    said = words(of_signature.stdout)
    assert "pool quarantine, rule default" in said
    assert "are quarantined since 1970-01-12" in said
    assert "observed 2,500 µs in 3 steps, predicted" in said
    assert "requests of tenant 'acme' that ask for hook work are quarantined" in words(of_tenant.stdout)


def test_explain_says_that_a_running_gateway_would_refuse(gateway: Running, steplane: Steplane) -> None:
    gateway.do(lambda admin: admin.admit())

    outcome = steplane("explain", "-", "--admin", gateway.url, stdin=b'{"messages": []}')

    assert outcome.code == 3
    assert "rejected with 503 pool_unavailable, rule default" in outcome.stdout


def test_explain_asks_a_gateway_or_goes_by_a_file_not_both(steplane: Steplane) -> None:
    options = ("--admin", "http://127.0.0.1:1", "--config", "f.yaml")
    outcome = steplane("explain", "-", *options, stdin=b'{"messages": []}')

    assert outcome.code == 1
    assert "--admin and --config exclude each other" in outcome.stderr


def test_nobody_can_do_something_without_a_name(quarantine: Steplane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USER")
    monkeypatch.delenv("LOGNAME", raising=False)

    outcome = quarantine("add", BOMB, "--reason", "r")

    assert outcome.code == 1
    assert "--author NAME" in outcome.stderr


def test_a_gateway_that_is_not_there_is_said_so_with_what_to_look_at(steplane: Steplane) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"

        outcome = steplane("quarantine", "list", "--admin", url)

    assert outcome.code == 1
    assert f"nothing answers at {url}" in outcome.stderr
    assert "--admin URL names another" in outcome.stderr


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "is no Steplane (200, no JSON)"),
        (404, b'{"detail": "Not Found"}', "answers 404 to GET /api/v1/quarantine: is the gateway running"),
    ],
)
def test_something_else_that_answers_there_is_said_so(steplane: Steplane, status: int, body: bytes, said: str) -> None:
    with answering(status, body) as (place, _):
        outcome = steplane("quarantine", "list", "--admin", place)

    assert outcome.code == 1
    assert said in outcome.stderr


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("2d", 172_800), (" 5m ", 300), ("0.5s", 0.5)],
)
def test_durations_are_read_as_people_write_them(text: str, expected_s: float) -> None:
    assert seconds(text) == expected_s


@pytest.mark.parametrize(
    "text", ["", "m", "0", "0m", "-5m", "5 m", "5min", "1h30m", "1e3", "nan", "\N{ARABIC-INDIC DIGIT ONE}s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="expected a duration such as 90s, 10m, 2h or 1d"):
        seconds(text)
