"""The loop closed on a real SGLang: what a step really cost decides where the next request of its kind goes."""

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.served import Served, gateway
from tests.engines.build import SHIMS
from tests.engines.plugin import install
from tests.engines.sglang_server import PACE_S, sglang, slow_down

# A prompt of 1,500 tokens with its log probabilities takes seconds of hooks; nothing usual takes a tenth of a second.
HARD_LIMIT_US = 300_000
MATES = 4
TOKENS = 150


@pytest.fixture(scope="module")
def house(sglang_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway in front of two SGLangs with the plugin: one for everybody, one for quarantine."""
    site = tmp_path_factory.mktemp("site")
    install(site)
    # The engine's own watchdog would be as quick; here the gateway has to do it.
    variables = {
        "STEPLANE_ON_HARD_LIMIT": "record",
        "PYTHONPATH": os.pathsep.join([str(site), str(SHIMS)]),
    }
    settings = {"interactive": {"step_budget_us": 100_000, "hard_limit_us": HARD_LIMIT_US}}
    with (
        sglang("sglang-interactive", overlap=True, variables=variables) as interactive,
        sglang("sglang-quarantine", overlap=True, variables=variables) as quarantine,
    ):
        pools = {"interactive": {"everybody": interactive}, "quarantine": {"alone": quarantine}}
        with gateway(tmp_path_factory.mktemp("gateway"), pools, settings=settings) as served:
            for url in (interactive, quarantine):
                for _ in range(3):  # the first runs of a kind of hook are never judged
                    httpx.post(f"{url}/generate", json=bomb(30), timeout=120).raise_for_status()
            wait_for(lambda: sources(served) == {"everybody": "steps", "alone": "steps"})
            slow_down(interactive, PACE_S)
            yield served


def bomb(words: int) -> dict[str, Any]:
    """Log probabilities of a whole prompt."""
    return {
        "text": "word " * words,
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": 20,
        "sampling_params": {"max_new_tokens": 4, "temperature": 0},
    }


def wait_for(condition: Any, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def sources(served: Served) -> dict[str, str]:
    """Where the gateway's knowledge of each replica comes from."""
    found: dict[str, str] = {}
    for pool in httpx.get(f"{served.admin_url}/api/v1/pools", timeout=30).json()["pools"]:
        for replica in pool["replicas"]:
            source = replica["source"]
            found[replica["name"]] = source["source"] if isinstance(source, dict) else source
    return found


class Mate:
    """A plain stream that runs beside the bomb."""

    def __init__(self, served: Served, number: int) -> None:
        self.text = ""
        self.pool = ""
        self.whole = False
        self.begun = threading.Event()
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": f"tell me about number {number}"}],
            "temperature": 0,
            "max_tokens": TOKENS,
            "ignore_eos": True,
            "stream": True,
        }
        self._thread = threading.Thread(target=self._run, args=(f"{served.url}/v1/chat/completions", body))
        self._thread.start()

    def _run(self, url: str, body: dict[str, Any]) -> None:
        with httpx.stream("POST", url, json=body, timeout=300) as response:
            self.pool = response.headers["x-steplane-pool"]
            for line in response.iter_lines():
                if line == "data: [DONE]":
                    self.whole = True
                elif line.startswith("data: "):
                    for choice in json.loads(line[6:])["choices"]:
                        self.text += choice["delta"].get("content") or ""
                    self.begun.set()

    def finish(self) -> str:
        self._thread.join()
        return self.text


def test_a_bomb_is_named_aborted_and_quarantined_and_its_batch_mates_go_on(
    house: Served, figures: list[str], tmp_path: Path
) -> None:
    undisturbed = [Mate(house, number) for number in range(MATES)]
    texts = [mate.finish() for mate in undisturbed]

    mates = [Mate(house, number) for number in range(MATES)]
    for mate in mates:
        assert mate.begun.wait(120)
    began = time.monotonic()
    first = httpx.post(f"{house.url}/generate", json=bomb(1500), timeout=300)
    first_s = time.monotonic() - began
    again = httpx.post(f"{house.url}/generate", json=bomb(1500), timeout=300)

    # What tripped had sent nothing yet: it was run again, where it may take its time.
    assert (first.status_code, first.headers["x-steplane-pool"]) == (200, "quarantine")
    assert len(first.json()["meta_info"]["input_token_logprobs"]) > 1000
    assert (again.status_code, again.headers["x-steplane-pool"]) == (200, "quarantine")

    assert [mate.finish() for mate in mates] == texts
    assert all(mate.whole and mate.pool == "interactive" for mate in mates)

    barred = httpx.get(f"{house.admin_url}/api/v1/quarantine", timeout=30).json()["quarantined"]
    assert [(each["kind"], each["cause"], each["pool"]) for each in barred] == [
        ("signature", "hard_limit", "interactive")
    ]
    trip = barred[0]["trip"]
    assert trip["hook"] == "prompt_logprobs"
    figures.append(
        f"breaker on SGLang: a prompt-logprobs bomb of {trip['observed'] / 1e3:.0f} ms in one step, answered from "
        f"quarantine after {first_s:.1f} s; {MATES} batch-mates byte-identical"
    )
