"""Brings up what clients talk to: simulators and a gateway in front of replicas, each as the process a user runs."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.clients.case import MODEL
from tests.clients.processes import answers, free_port, running
from tests.clients.tap import Tap, tapped

_START_S = 60.0


@dataclass(frozen=True, slots=True)
class Served:
    """A running gateway.

    replicas: the URLs behind it, by the names it gives in `x-steplane-replica`.
    taps:     what stands between the gateway and those replicas, by the same names; empty if nothing does.
    """

    url: str
    admin_url: str
    replicas: Mapping[str, str]
    taps: Mapping[str, Tap]


@contextmanager
def simulator(name: str, *flags: str) -> Iterator[str]:
    """The URL of a simulated replica that serves `MODEL`."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, "-m", "replica.simulator", "--port", str(port)),
        *("--name", name, "--model-name", MODEL, "--context-length", "4096", *flags),
    ]
    with running(f"simulator-{name}", command, ready=answers(f"{url}/health"), start_s=_START_S):
        yield url


@contextmanager
def gateway(
    folder: Path,
    pools: Mapping[str, Mapping[str, str]],
    rules: Sequence[Mapping[str, Any]] = (),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Served]:
    """`steplane serve` in front of `pools` (pool name → replica name → URL), the first of them the default pool.

    `settings`: what else the configuration says of a pool, by its name. The file is written into `folder`.
    """
    port, admin_port = free_port(), free_port()
    served = Served(
        url=f"http://127.0.0.1:{port}",
        admin_url=f"http://127.0.0.1:{admin_port}",
        replicas={name: url for replicas in pools.values() for name, url in replicas.items()},
        taps={},
    )
    configuration = {
        "listen": f"127.0.0.1:{port}",
        "admin": {"listen": f"127.0.0.1:{admin_port}"},
        "default_pool": next(iter(pools)),
        "pools": {
            pool: {
                "engine": "sglang",
                "replicas": [{"url": url, "name": name} for name, url in replicas.items()],
                # SGLang takes a second for every check, and longer when a step does.
                "health": {"timeout_s": 20},
                **(settings or {}).get(pool, {}),
            }
            for pool, replicas in pools.items()
        },
        "rules": [*rules],
    }
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(configuration, indent=1))  # JSON is YAML
    command = [sys.executable, "-m", "gateway.cli", "serve", "-c", str(file)]
    with running("gateway", command, ready=answers(f"{served.admin_url}/readyz"), start_s=_START_S):
        yield served


@contextmanager
def tapped_gateway(
    folder: Path, pools: Mapping[str, Mapping[str, str]], rules: Sequence[Mapping[str, Any]] = ()
) -> Iterator[Served]:
    """As `gateway`, with a tap in front of every replica. `Served.replicas` still go past the taps."""
    replicas = {name: url for members in pools.values() for name, url in members.items()}
    with ExitStack() as stack:
        taps = {name: stack.enter_context(tapped(url)) for name, url in replicas.items()}
        behind = {pool: {name: taps[name].url for name in members} for pool, members in pools.items()}
        served = stack.enter_context(gateway(folder, behind, rules))
        yield replace(served, replicas=replicas, taps=taps)
