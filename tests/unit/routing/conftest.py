"""Requests as rules see them, made from a few features."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.hookcost import Api, Classification, Features, HookCost
from gateway.routing.request import RouteRequest

MakeRequest = Callable[..., RouteRequest]

COST_FIELDS = ("compile_ms", "step_us", "by_hook", "heavy")


def _request(
    method: str = "POST",
    path: str = "/v1/chat/completions",
    signature: str = "s1-0",
    grammar_key: str = "",
    **what: Any,
) -> RouteRequest:
    cost = HookCost(**{name: what.pop(name) for name in COST_FIELDS if name in what})
    features = Features(**{"api": Api.chat, "model": "qwen3-8b"} | what)
    return RouteRequest(method, path, Classification(features, cost, signature, grammar_key))


@pytest.fixture
def make_request() -> MakeRequest:
    """Builds a plain chat request; keywords are features, parts of the cost, `method`, `path`, `signature`, …"""
    return _request
