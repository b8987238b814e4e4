"""The measurement: every kind of traffic through every gateway, in turn, again and again.

Owns the order of the runs and what is read before and after each. A round visits all gateways with one kind of
traffic before the next kind begins, in an order that turns from round to round: what disturbs the machine for a while
disturbs all of them, and a ratio is only ever taken within one round.
"""

import http.client
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from loadtest.ports import free_port as free_port
from loadtest.wire import process
from loadtest.wire.contenders import DIRECT, ROOT, Contender, Site, on_loopback
from loadtest.wire.driver import Driver, Load
from loadtest.wire.workload import KINDS, Kind, request, write_requests

_START_S = 90.0
_WARM_S = 0.3
_SLOW_STREAMS = 2
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9]+")
"""What does not stand in every gateway's configuration as part of a path."""
_TIMED = ("plain", "paced")
"""The kinds whose latency without a gateway is measured, too."""


class ContenderError(Exception):
    """A gateway did not start, or did not answer well."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one kind of traffic through one gateway."""

    contender: str
    kind: str
    round: int
    cpu_us: float
    """Of the gateway's processes, per request or chunk."""
    busy: float
    """CPU time of the gateway over wall time: near 1 when it was the bottleneck."""
    rss_bytes: int
    """After the run."""
    load: Load


@dataclass(frozen=True, slots=True)
class Plan:
    """Times in seconds; `seconds` is one run of the unpaced kinds."""

    rounds: int
    seconds: float
    kinds: tuple[Kind, ...]
    gateway_core: int
    driver_core: int
    replicas: int = 4
    peer_rounds: int = 2
    """Of the LLM routers, whose figures need not be as sharp."""
    warm_s: float = 0.0
    """Unmeasured, before each run: connections that idled while others were measured are made anew."""
    settle_s: float = 0.0
    """Between the start of the gateways and the first round: large fleets are looked at in turn."""

    def rounds_of(self, contender: Contender) -> int:
        """How often a contender is measured."""
        if contender.slow:
            return 1
        return min(self.rounds, self.peer_rounds) if contender.peer else self.rounds


@dataclass(frozen=True, slots=True)
class Gateway:
    """A contender that runs."""

    contender: Contender
    process: subprocess.Popen[bytes]
    port: int


def _log_tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:].strip() or "(it printed nothing)"


def _answers(port: int) -> bool:
    """Whether a chat request gets a 200; a few in a row, for every replica must be known to the gateway."""
    body = request(KINDS[0], "ready?", f"127.0.0.1:{port}").partition(b"\r\n\r\n")[2]
    for _ in range(8):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            if connection.getresponse().status != http.client.OK:
                return False
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
    return True


@contextmanager
def running(contender: Contender, site: Site, core: int) -> Iterator[Gateway]:
    """The contender in front of the site's replicas, from its first good answer on."""
    site.directory.mkdir(parents=True)
    log = site.directory / "log"
    started = process.start(contender.command(site), core, log, ROOT)
    try:
        deadline = time.monotonic() + _START_S
        while not _answers(site.port):
            if started.poll() is not None:
                raise ContenderError(f"{contender.name} ended with status {started.returncode}:\n{_log_tail(log)}")
            if time.monotonic() > deadline:
                raise ContenderError(f"{contender.name} did not serve within {_START_S:.0f} s:\n{_log_tail(log)}")
            time.sleep(0.1)
        yield Gateway(contender, started, site.port)
    finally:
        process.stop(started)


def run(driver: Driver, gateway: Gateway, kind: Kind, requests: Path, seconds: float) -> tuple[float, float, Load]:
    """CPU microseconds, wall seconds, and what the clients saw."""
    pid = gateway.process.pid
    began, before = time.monotonic(), process.cpu_ns(pid)
    load = driver.run(gateway.port, requests, connections=kind.connections, seconds=seconds, rate=kind.rate)
    spent, took = process.cpu_ns(pid) - before, time.monotonic() - began
    return spent / 1e3, took, load


def fitting(kind: Kind, contender: Contender) -> Kind | None:
    """A kind of traffic as a contender is measured with it; None: not at all."""
    if not contender.slow:
        return kind
    if kind.rate:
        return None
    return replace(kind, connections=_SLOW_STREAMS) if kind.chunks else kind


def _sample(driver: Driver, gateway: Gateway, kind: Kind, requests: Path, plan: Plan, number: int) -> Sample:
    if plan.warm_s:
        run(driver, gateway, kind, requests, plan.warm_s)
    spent_us, took_s, load = run(driver, gateway, kind, requests, plan.seconds)
    name = gateway.contender.name
    units = load.events if kind.chunks else load.requests
    if not units:
        raise ContenderError(f"{name} answered no {kind.name} request: {load.first_error}")
    rss = process.rss_bytes(gateway.process.pid)
    return Sample(name, kind.name, number, spent_us / units, spent_us / 1e6 / took_s, rss, load)


def _direct(driver: Driver, kind: Kind, requests: Path, plan: Plan, number: int) -> Sample:
    """A replica asked by the clients themselves."""
    load = driver.run(driver.ports[0], requests, connections=kind.connections, seconds=plan.seconds, rate=kind.rate)
    return Sample(DIRECT, kind.name, number, 0.0, 0.0, 0, load)


def measure(
    plan: Plan, contenders: Sequence[Contender], driver: Driver, directory: Path, say: Callable[[str], None]
) -> Iterator[Sample]:
    """Yields the samples as they are taken. A gateway that does not start is left out, and said so."""
    with ExitStack() as stack:
        gateways: list[Gateway] = []
        for contender in contenders:
            folder = directory / _NOT_PLAIN.sub("-", contender.name)
            site = Site(folder, free_port(), free_port(), on_loopback(driver.ports))
            try:
                gateways.append(stack.enter_context(running(contender, site, plan.gateway_core)))
            except ContenderError as error:
                say(str(error))
        files: dict[str, Path] = {}
        for kind in plan.kinds:
            files[kind.name] = directory / f"{kind.name}.requests"
            write_requests(kind, "127.0.0.1:8080", files[kind.name])
            for gateway in gateways:
                if fits := fitting(kind, gateway.contender):
                    run(driver, gateway, fits, files[kind.name], _WARM_S)
        time.sleep(plan.settle_s)
        for number in range(plan.rounds):
            say(f"round {number + 1} of {plan.rounds}")
            for kind in plan.kinds:
                if kind.name in _TIMED:
                    yield _direct(driver, kind, files[kind.name], plan, number)
                for gateway in _turned(gateways, number):
                    fits = fitting(kind, gateway.contender)
                    if fits is None or number >= plan.rounds_of(gateway.contender):
                        continue
                    try:
                        yield _sample(driver, gateway, fits, files[kind.name], plan, number)
                    except ContenderError as error:
                        say(f"measured no further: {error}")
                        gateways.remove(gateway)


def _turned(gateways: Sequence[Gateway], by: int) -> list[Gateway]:
    """The gateways, beginning with another one each time."""
    at = by % len(gateways) if gateways else 0
    return [*gateways[at:], *gateways[:at]]
