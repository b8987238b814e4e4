"""Brings up what clients talk to: simulators and a gateway in front of replicas, each as the process a user runs."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.case import MODEL
from tests.clients.processes import answers, free_port, running

_START_S = 60.0


@dataclass(frozen=True, slots=True)
class Served:
    """A running gateway. `replicas` are the URLs behind it by the names it gives in `x-steplane-replica`."""

    url: str
    admin_url: str
    replicas: Mapping[str, str]


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
    folder: Path, pools: Mapping[str, Mapping[str, str]], rules: Sequence[Mapping[str, Any]] = ()
) -> Iterator[Served]:
    """`steplane serve` in front of `pools` (pool name → replica name → URL), the first of them the default pool.

    The configuration file is written into `folder`.
    """
    port, admin_port = free_port(), free_port()
    served = Served(
        url=f"http://127.0.0.1:{port}",
        admin_url=f"http://127.0.0.1:{admin_port}",
        replicas={name: url for replicas in pools.values() for name, url in replicas.items()},
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
