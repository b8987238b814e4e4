"""Requests and replicas as balancers see them, made from a few words."""

import json

from gateway.hookcost import Api, Classification, Features, HookCost
from gateway.routing.balance.ask import Ask
from gateway.routing.replica import Replica


def replicas(count: int, first: int = 0, **what: object) -> tuple[Replica, ...]:
    return tuple(replica(f"r{at}", **what) for at in range(first, first + count))


def replica(name: str, *, load: int = 0, weight: float = 1.0, zone: str = "") -> Replica:
    made = Replica(name, f"http://{name}:1", name, 1, available=True, weight=weight, zone=zone)
    made.in_flight = load
    return made


def ask(
    *, grammar: str = "", user: str = "", headers: dict[str, str] | None = None, prompt: str = "", model: str = "m"
) -> Ask:
    body: dict[str, object] = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    if user:
        body["user"] = user
    features = Features(api=Api.chat, model=model)
    return Ask(
        Classification(features, HookCost(), "s1-0", grammar),
        json.dumps(body).encode(),
        tuple((name.encode(), value.encode()) for name, value in (headers or {}).items()),
    )
