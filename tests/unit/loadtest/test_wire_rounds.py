"""The bench from end to end, with the gateways that this machine has."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.wire import __main__ as command
from loadtest.wire import contenders, driver, process
from loadtest.wire.contenders import CONTENDERS, DIRECT, Contender, Site
from loadtest.wire.rounds import ContenderError, free_port, running

CORE = min(os.sched_getaffinity(0))
BY_NAME = {each.name: each for each in CONTENDERS}


@pytest.mark.parametrize("name", ["HAProxy", "nginx", "Steplane", "Steplane (interpreted)"])
def test_a_gateway_is_measured(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if reason := BY_NAME[name].missing():
        pytest.skip(reason)
    path = tmp_path / "wire.json"
    size = ["--rounds", "2", "--seconds", "0.05", "--kinds", "plain,schema", "--no-png"]
    assert command.main([*size, "--only", name.lower(), "--json", str(path)]) == 0
    samples = json.loads(path.read_text())["samples"]
    assert [(each["contender"], each["kind"], each["round"]) for each in samples if each["contender"] != DIRECT] == [
        (name, kind, number) for number in range(2) for kind in ("plain", "schema")
    ]
    assert all(each["cpu_us"] > 0 and each["rss_bytes"] > 0 for each in samples if each["contender"] != DIRECT)
    assert f"| {name} |" in capsys.readouterr().out


def test_a_gateway_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import sys; sys.exit('no such option')"]
    broken = Contender("broken", lambda site: words, lambda: None, lambda: "broken 1.0")
    site = Site(tmp_path / "site", free_port(), free_port(), ("127.0.0.1:1",))
    with (
        pytest.raises(ContenderError, match=r"broken ended with status 1:\nno such option"),
        running(broken, site, CORE),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_ended_bench_leaves_no_process_behind(number: signal.Signals, tmp_path: Path) -> None:
    name = next(each.name for each in CONTENDERS if not each.missing())
    words = [sys.executable, "-m", "loadtest.wire", "--rounds", "1000", "--kinds", "plain", "--only", name]
    bench = subprocess.Popen(
        [*words, "--json", str(tmp_path / "x.json")],
        stderr=subprocess.PIPE,
        cwd=contenders.ROOT,
        # Where these tests run in the background of a shell they ignore SIGINT, and so would their children.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert bench.stderr is not None
    with bench:
        try:
            assert b"round 1 of" in bench.stderr.readline()
            started = [os.pidfd_open(pid) for pid in process.tree(bench.pid)[1:]]
            assert len(started) >= 2
            bench.send_signal(number)
            assert bench.wait(60) != 0
        finally:
            bench.kill()
    for each in started:
        poller = select.poll()
        poller.register(each)
        assert poller.poll(10_000)
        os.close(each)


def test_a_gateway_that_is_missing_is_left_out_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(contenders, "_SBIN", str(tmp_path))
    present, left_out = command._present([BY_NAME["HAProxy"]], install=False)
    assert present == []
    assert left_out[0].startswith("HAProxy: haproxy is not installed")
    assert "apt-get install haproxy" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--kinds", "plain,odd"), ("--only", "haproxy,odd")])
def test_an_unknown_name_is_refused_with_those_that_exist(option: str, value: str) -> None:
    with pytest.raises(SystemExit, match=r"there is no (kind|gateway) 'odd'; there are: .*(plain|HAProxy)"):
        command.main([option, value])


def test_a_driver_that_dies_is_an_error(tmp_path: Path) -> None:
    with (
        driver.Driver(driver.build(tmp_path), CORE, 1) as clients,
        pytest.raises(driver.DriverError, match="exit status"),
    ):
        clients.run(clients.ports[0], tmp_path / "absent", connections=1, seconds=0.1)
