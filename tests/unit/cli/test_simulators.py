import asyncio
import os
import signal
import socket
import sys
from importlib.util import find_spec

import pytest

from gateway.cli import simulators as module
from gateway.cli.failure import CliError
from gateway.cli.simulators import Simulator, SimulatorError, Simulators, require_simulator


def test_an_extra_that_is_missing_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "llguidance" else find_spec(name))

    with pytest.raises(CliError, match=r"need llguidance, which .*: .* -m pip install '.*simulator.*'"):
        require_simulator()


async def test_a_simulator_that_does_not_start_tells_how_it_ended_and_what_it_said() -> None:
    simulator = Simulator("odd", ["--no-such-flag"])

    with pytest.raises(SimulatorError) as failed:
        await simulator.start()

    assert str(failed.value).startswith("the simulated replica 'odd' did not start: exit code 2\n")
    assert "--no-such-flag" in str(failed.value)


async def test_one_that_does_not_start_ends_the_others() -> None:
    group = Simulators(["good"], asyncio.Event())
    group.all.append(Simulator("bad", ["--no-such-flag"]))

    with pytest.raises(SimulatorError, match="'bad' did not start"):
        async with group:
            await group.start()

    pid = group.all[0].pid
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_simulators_that_were_never_started_give_their_ports_back() -> None:
    async with Simulators(["a", "b"], asyncio.Event()) as group:
        ports = [simulator.port for simulator in group.all]

    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


async def test_one_that_ignores_the_request_to_end_is_killed_when_there_is_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stubborn = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("x" * 100_000, "a line too long to be held", file=sys.stderr, flush=True)
print('{"event": "ready"}', flush=True)
time.sleep(600)
"""
    monkeypatch.setattr(module, "_COMMAND", (sys.executable, "-c", stubborn))
    at_once = asyncio.Event()
    simulator = Simulator("stubborn")
    await simulator.start()

    at_once.set()
    await simulator.stop(at_once)

    assert (await simulator.epitaph()).startswith(f"killed by {signal.SIGKILL.name}")
