"""`python -m loadtest.breaker.soak`: mixed traffic for minutes, in which nobody but offenders may be quarantined.

Plain streams, small schemas and top-20-logprobs streams run beside requests whose grammar breaks the step budget. By
the step feeds, read beside the gateway, every kind that is sent to quarantine must have been over its budget as often
as the breaker asks for; a plain request must never be there, and nothing but what trips may fail. Exit status 1 where
that does not hold.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from loadtest.breaker.site import Gateway, gateway, reads_feeds, simulator
from loadtest.breaker.steps import StepReader

BUDGET_US = 1000.0
STEPS = 3
"""Steps over budget that trip, as the gateway's default is."""
_HARD_US = 20 * BUDGET_US
_CONFIGURATION = """\
default_pool: interactive
hookcost: {{grammar_backend: llguidance}}
pools:
  interactive:
    replicas: [{{url: "{interactive}", name: interactive}}]
    step_budget_us: {budget_us}
  quarantine:
    replicas: [{{url: "{quarantine}", name: quarantine}}]
"""
_BOMB = "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]"
_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}

_USES = 4
"""How often each new name comes."""

Body = dict[str, object]


@dataclass(slots=True)
class Kind:
    """One kind of request, and what came of those that were sent. `bodies` gives the next one."""

    name: str
    clients: int
    bodies: Iterator[Body]
    offends: bool = False
    rids: list[str] = field(default_factory=list)
    pools: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)


def _body(model: str, tokens: int, **more: object) -> Body:
    return {
        "model": model,
        "messages": [{"role": "user", "content": "tell me more"}],
        "max_tokens": tokens,
        "stream": True,
        **more,
    }


def kinds() -> list[Kind]:
    """The mix. Models make signatures: an offender that comes back under a new name is a new one."""
    response_format = {"type": "json_schema", "json_schema": {"name": "trip", "schema": _SCHEMA}}
    forever: Callable[[Body], Iterator[Body]] = itertools.repeat
    return [
        Kind("plain", 6, forever(_body("plain", 100))),
        Kind("small schema", 2, forever(_body("schema", 60, response_format=response_format))),
        Kind("top 20 logprobs", 1, forever(_body("logprobs", 60, logprobs=True, top_logprobs=20))),
        Kind("bomb", 1, forever(_body("bomb", 60, ebnf=_BOMB)), offends=True),
        Kind(
            "bombs of many names",
            1,
            (_body(f"bomb-{number // _USES}", 60, ebnf=_BOMB) for number in itertools.count()),
            offends=True,
        ),
    ]


async def _client(kind: Kind, base: str, until: float, session: aiohttp.ClientSession) -> None:
    while time.monotonic() < until:
        try:
            async with session.post(f"{base}/v1/chat/completions", json=next(kind.bodies)) as response:
                kind.rids.append(response.headers.get("x-request-id", ""))
                kind.pools[response.headers.get("x-steplane-pool", "none")] += 1
                text = await response.text()
                if response.status != 200:
                    kind.failed[str(response.status)] += 1
                elif '"error"' in text:
                    kind.failed["error event"] += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            kind.failed[type(error).__name__] += 1


def _verdicts(kind: Kind, over: int, hardest_us: float) -> list[str]:
    """What is wrong with what came of one kind."""
    wrong = []
    quarantined = kind.pools["quarantine"]
    if quarantined and not (over >= STEPS or hardest_us > _HARD_US):
        wrong.append(
            f"{quarantined} of {kind.name!r} were quarantined, but only {over} of their steps were over budget"
        )
    if kind.failed and not quarantined:  # what trips is ended; nobody else is
        wrong.append(f"{kind.name!r} failed: {dict(kind.failed)}")
    if kind.name == "plain" and quarantined:
        wrong.append(f"{quarantined} plain requests were quarantined")
    if kind.offends and not quarantined:
        wrong.append(f"{kind.name!r} was never quarantined")
    return wrong


async def _soak(minutes: float, folder: Path) -> bool:
    mix = kinds()
    async with simulator("interactive", folder) as interactive, simulator("quarantine", folder) as quarantine:
        text = _CONFIGURATION.format(interactive=interactive, quarantine=quarantine, budget_us=BUDGET_US)
        async with gateway("gateway", text, folder) as running, StepReader(interactive) as steps:
            await reads_feeds(running, 2)
            await _run(mix, running, minutes)
            await asyncio.sleep(1.0)  # until the feed has told of the last steps
            return _report(mix, steps, await _quarantined(running))


async def _run(mix: list[Kind], running: Gateway, minutes: float) -> None:
    until = time.monotonic() + minutes * 60
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(_client(kind, running.url, until, session) for kind in mix for _ in range(kind.clients)))


async def _quarantined(running: Gateway) -> str:
    """What the gateway says of it; for people."""
    with contextlib.suppress(aiohttp.ClientError, json.JSONDecodeError):
        async with aiohttp.ClientSession() as session, session.get(f"{running.admin}/api/v1/quarantine") as response:
            return json.dumps(await response.json(), indent=1)[:2000]
    return "nothing"


def _report(mix: list[Kind], steps: StepReader, said: str) -> bool:
    print(f"{'kind':22} {'requests':>8} {'quarantined':>11} {'failed':>7} {'steps over':>10} {'dearest':>10}")
    wrong: list[str] = []
    for kind in mix:
        own = [steps.requests[rid] for rid in kind.rids if rid in steps.requests]
        over = sum(each.over(BUDGET_US) for each in own)
        hardest_us = max((us for each in own for us in each.own_us), default=0.0)
        wrong += _verdicts(kind, over, hardest_us)
        print(
            f"{kind.name:22} {sum(kind.pools.values()):8} {kind.pools['quarantine']:11} "
            f"{kind.failed.total():7} {over:10} {hardest_us / 1e3:7.2f} ms  {dict(kind.failed) or ''}"
        )
    for line in wrong:
        print(f"wrong: {line}")
    if wrong:
        print(said)
    return not wrong


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.breaker.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (%(default)g)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return 0 if asyncio.run(_soak(options.minutes, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
