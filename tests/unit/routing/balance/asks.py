"""Requests and replicas as balancers see them, made from a few words."""

import json
from dataclasses import dataclass

from gateway.hookcost import Api, Classification, Features, HookCost
from gateway.routing.balance.ask import Ask
from gateway.routing.replica import Replica


def replicas(count: int, first: int = 0, **what: object) -> tuple[Replica, ...]:
    return tuple(replica(f"r{at}", **what) for at in range(first, first + count))


def replica(name: str, *, load: int = 0, weight: float = 1.0, zone: str = "") -> Replica:
    made = Replica(name, f"http://{name}:1", name, 1, available=True, weight=weight, zone=zone)
    made.in_flight = load
    return made


@dataclass(frozen=True, eq=False)
class Head:
    """A head with these headers."""

    headers: dict[str, str]
    target: bytes = b"/"
    base: None = None

    def header(self, name: bytes) -> bytes | None:
        value = self.headers.get(name.decode())
        return None if value is None else value.encode()


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
        None if headers is None else Head(headers),
    )
