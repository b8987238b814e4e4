"""Gateways to trip breakers in."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from breaker_world import MORNING, World

from gateway.breaker.policy import BreakerPolicy


@pytest.fixture
def world() -> World:
    """A gateway with the default policy."""
    return World()


@pytest.fixture
def make_world() -> Callable[..., World]:
    """Makes a gateway; keywords are parts of the policy, and where its clocks begin."""

    def make(at_s: float = 0.0, wall_offset_s: float = MORNING, **policy: object) -> World:
        return World(replace(BreakerPolicy(), **policy), at_s, wall_offset_s)  # type: ignore[arg-type]

    return make
