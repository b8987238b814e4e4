"""Tests of the loop run on uvloop, as the gateway does, and in a hurry: what takes seconds there takes hundredths."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import uvloop

from gateway.breaker.policy import BreakerPolicy
from gateway.control.breakerconfig import BreakerConfig


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The once-a-second work is done fifty times a second, and a probe is judged soon after its end.

    Scripted feeds tell of a step at once, real ones once a second: that is what probes otherwise wait for. The values
    of `Probing` that are returned may be changed before a gateway starts.
    """
    told = BreakerConfig.policy
    hurry = {"settle_s": 0.1, "offer_s": 0.02}

    def hurried(config: BreakerConfig, quarantine_pool: str | None) -> BreakerPolicy:
        policy = told(config, quarantine_pool)
        return replace(policy, probing=replace(policy.probing, **hurry))

    monkeypatch.setattr("gateway.oversight._TICK_S", 0.02)
    monkeypatch.setattr(BreakerConfig, "policy", hurried)
    return hurry
