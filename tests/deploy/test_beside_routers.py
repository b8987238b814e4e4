"""Beside sglang-router and smg as docs/proxies.md says: behind one, with the flags that it names, and in front of one.

The routers have environments of their own, which `make bench` makes; without them there is nothing to ask.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.clients.processes import answers, free_port, running
from tests.unit.docs.pages import REPOSITORY, blocks

PAGE = (REPOSITORY / "docs" / "proxies.md").read_text()
ROUTERS = {
    "sglang-router": [".venvs/sglang-router/bin/python", "-m", "sglang_router.launch_router"],
    "smg": [".venvs/smg/bin/python", "-m", "smg.launch_router"],
}
ASKED = {"model": "steplane-simulator", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
PATIENCE_S = 120.0
CONFIG = """
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
default_pool: interactive
"""


@pytest.fixture(params=ROUTERS)
def router(request: pytest.FixtureRequest) -> list[str]:
    command = ROUTERS[request.param]
    if not (REPOSITORY / command[0]).exists():
        pytest.skip(f"{request.param} is not installed (make bench)")
    return [str(REPOSITORY / command[0]), *command[1:]]


@pytest.fixture
def engine() -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "replica.simulator", "--port", str(port)]
    with running("engine", command, ready=answers(f"{url}/health"), start_s=PATIENCE_S):
        yield url


def gateway(folder: Path, pools: str) -> tuple[list[str], str, str]:
    """The command, and the URLs of clients and of the admin port."""
    port, admin = free_port(), free_port()
    config = folder / "gateway.yaml"
    config.write_text(CONFIG.format(port=port, admin=admin) + pools)
    command = [sys.executable, "-m", "gateway.cli", "serve", "-c", str(config)]
    return command, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}"


def told(section: str) -> list[str]:
    """The flags that a section of the page names."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"`(--[\w-]+)`", text)


def test_the_routers_have_the_flags_that_the_page_names(router: list[str]) -> None:
    said = subprocess.run([*router, "--help"], check=True, capture_output=True, text=True).stdout
    flags = told("Behind `sglang-router` or `smg`")
    assert flags
    assert not [flag for flag in flags if flag not in said]
    assert "round_robin" in said


def test_behind_a_router_requests_arrive_and_are_routed(router: list[str], engine: str, tmp_path: Path) -> None:
    pools = f'pools: {{interactive: {{replicas: ["{engine}"], feed: "off"}}}}\n'
    command, url, admin = gateway(tmp_path, pools)
    with running("gateway", command, ready=answers(f"{admin}/readyz"), start_s=PATIENCE_S):
        port = free_port()
        flags = ["--policy", "round_robin", *told("Behind `sglang-router` or `smg`"), "--worker-urls", url]
        asked = [*router, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()), *flags]
        at = f"http://127.0.0.1:{port}"
        with running("router", asked, ready=answers(f"{at}/health"), start_s=PATIENCE_S):
            reply = httpx.post(f"{at}/v1/chat/completions", json=ASKED, timeout=PATIENCE_S)
            assert reply.status_code == 200, reply.text
            assert reply.json()["choices"][0]["message"]["content"]
        counted = httpx.get(f"{admin}/metrics").text
    assert re.search(r'^steplane_requests_total\{pool="interactive",rule="\w*",status="2xx"\} [1-9]', counted, re.M)


def test_in_front_of_a_router_it_is_one_replica(router: list[str], engine: str, tmp_path: Path) -> None:
    port = free_port()
    at = f"http://127.0.0.1:{port}"
    asked = [*router, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    [pools] = [block.code for block in blocks() if block.page.name == "proxies.md" and "engine: other" in block.code]
    command, url, admin = gateway(tmp_path, re.sub(r"http://[\d.]+:\d+", at, pools))
    with (
        running("router", [*asked, "--worker-urls", engine], ready=answers(f"{at}/health"), start_s=PATIENCE_S),
        running("gateway", command, ready=answers(f"{admin}/readyz"), start_s=PATIENCE_S),
    ):
        reply = httpx.post(f"{url}/v1/chat/completions", json=ASKED, timeout=PATIENCE_S)
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-steplane-pool"] == "interactive"
