"""The site of compose.yaml without a container engine: its services as processes, its files as they are.

Each service is started by the command, the environment and the files that compose.yaml gives it; where those name a
service and its port, it is told where that is on this machine.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.clients.processes import answers, free_port, running
from tests.integration.state.harness import RedisServer

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
PATIENCE_S = 120.0
SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
HAPROXY = shutil.which("haproxy", path=SBIN)
TOKEN = {"authorization": "Bearer compose"}
"""As the file says to people."""

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed")


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.05)


class Site:
    """The services that run, and where each of their ports is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = (DEPLOY / "compose.yaml").read_text()
        self.services: dict[str, Any] = yaml.safe_load(self.file)["services"]
        self.ports: dict[tuple[str, int], int] = {}

    def port(self, service: str, number: int) -> int:
        return self.ports.setdefault((service, number), free_port())

    def here(self, text: str, service: str) -> str:
        """With the addresses of this machine in the place of those of the containers' network."""
        names = "|".join(map(re.escape, self.services))

        def moved(found: re.Match[str]) -> str:
            named = service if found[1][0].isdigit() else found[1]
            return f"127.0.0.1:{self.port(named, int(found[2]))}"

        return re.sub(rf"\b({names}|0\.0\.0\.0|127\.0\.0\.1):(\d+)\b", moved, text)

    def environment(self, service: str) -> dict[str, str]:
        found = {}
        for name, value in self.services[service].get("environment", {}).items():
            default = re.fullmatch(r"\$\{\w+:-(.*)\}", value)
            found[name] = default[1] if default else value
        return found

    def mounted(self, service: str, suffix: str) -> Path:
        """What a service reads from the repository."""
        [source] = [
            each.split(":")[0] for each in self.services[service]["volumes"] if each.split(":")[1].endswith(suffix)
        ]
        return DEPLOY / str(source)

    def simulator(self, service: str) -> AbstractContextManager[object]:
        settings = self.services[service]
        words = [*settings["entrypoint"][1:], *settings["command"]]
        # `--host 0.0.0.0 --port 30000` stand apart.
        words[words.index("0.0.0.0")] = "127.0.0.1"
        words = [str(self.port(service, 30000)) if word == "30000" else self.here(word, service) for word in words]
        return self._running(service, [sys.executable, *words], self.url(service, 30000) + "/health")

    def gateway(self, service: str) -> AbstractContextManager[object]:
        config = self.folder / f"{service}.yaml"
        config.write_text(self.here(self.mounted(service, "gateway.yaml").read_text(), service))
        command = [sys.executable, "-m", "gateway.cli", "serve", "-c", str(config)]
        return self._running(service, command, self.url(service, 8081) + "/readyz")

    def balancer(self) -> AbstractContextManager[object]:
        told = {}
        for name, value in self.environment("balancer").items():
            if name == "BIND":
                told[name] = f"127.0.0.1:{self.port('balancer', 8080)}"
            elif name.startswith("ADMIN_PORT_"):
                told[name] = str(self.port(f"gateway-{name[-1]}", int(value)))
            else:
                told[name] = self.here(value, "balancer") if ":" in value else "127.0.0.1"
        command = [str(HAPROXY), "-db", "-f", str(self.mounted("balancer", "haproxy.cfg"))]
        return self._running("balancer", command, self.url("balancer", 8080) + "/v1/models", told)

    def url(self, service: str, number: int) -> str:
        return f"http://127.0.0.1:{self.port(service, number)}"

    def _running(
        self, service: str, command: list[str], url: str, told: Mapping[str, str] | None = None
    ) -> AbstractContextManager[object]:
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)} | (told or self.environment(service))
        return running(f"compose-{service}", command, ready=answers(url), start_s=PATIENCE_S, environment=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    arguments = [str(word) for word in site.services["redis"]["command"][1:]]
    with ExitStack() as stack:
        stack.callback(RedisServer(site.folder / "redis", *arguments, port=site.port("redis", 6379)).start().kill)
        for service in ("interactive", "grammar", "quarantine"):
            stack.enter_context(site.simulator(service))
        for service in ("gateway-1", "gateway-2"):
            stack.enter_context(site.gateway(service))
        stack.enter_context(site.balancer())
        yield site


def test_what_the_file_says_to_type_works(site: Site) -> None:
    [typed] = re.findall(r"^# +(curl .*?)\n#\n", site.file, re.M | re.S)
    command = shlex.split(typed.replace("\\\n#", " "))
    words = [site.here(word.replace("127.0.0.1:8080", "balancer:8080"), "balancer") for word in command]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert "x-steplane-pool: interactive" in done.stdout
    assert done.stdout.rstrip().endswith("data: [DONE]")


def test_structured_output_goes_to_its_pool_and_the_feed_tells_of_it(site: Site) -> None:
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "response_format": {"type": "json_object"},
        "max_tokens": 16,
    }
    reply = httpx.post(site.url("balancer", 8080) + "/v1/chat/completions", json=body, timeout=PATIENCE_S)
    assert (reply.status_code, reply.headers["x-steplane-pool"]) == (200, "grammar")
    for service in ("gateway-1", "gateway-2"):
        replicas = httpx.get(site.url(service, 8081) + "/api/v1/replicas", headers=TOKEN).json()["replicas"]
        assert {each["name"]: each["source"]["source"] for each in replicas} == dict.fromkeys(
            ("interactive", "grammar", "quarantine"), "steps"
        )


def test_what_one_gateway_quarantines_the_other_knows(site: Site) -> None:
    body = {"signature": "s1-00000000000000aa", "author": "me", "reason": "a test", "pin": True}
    first, second = (site.url(service, 8081) + "/api/v1/quarantine" for service in ("gateway-1", "gateway-2"))
    assert httpx.post(first, json=body, headers=TOKEN).status_code == 201
    until(
        lambda: body["signature"] in [each["key"] for each in httpx.get(second, headers=TOKEN).json()["quarantined"]],
        "known to the other",
    )


def test_nobody_asks_the_admin_port_without_its_token_but_for_health_and_metrics(site: Site) -> None:
    def status(path: str) -> int:
        return httpx.get(site.url("gateway-1", 8081) + path).status_code

    assert [status(path) for path in ("/healthz", "/readyz", "/metrics", "/api/v1/pools")] == [200, 200, 200, 401]


@pytest.mark.parametrize("service", ["interactive", "grammar", "quarantine"])
def test_health_checks_of_containers_find_them_well(site: Site, service: str) -> None:
    _, _, *words = site.services[service]["healthcheck"]["test"]
    subprocess.run([sys.executable, *(site.here(word, service) for word in words)], check=True)


def test_prometheus_finds_what_it_scrapes(site: Site) -> None:
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    for job in yaml.safe_load(text)["scrape_configs"]:
        for target in job["static_configs"][0]["targets"]:
            service, _, number = target.partition(":")
            page = httpx.get(site.url(service, int(number)) + "/metrics")
            assert page.status_code == 200, json.dumps(target)
            assert "# TYPE" in page.text
