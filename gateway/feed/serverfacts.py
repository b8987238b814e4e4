"""What an engine was started with, as far as it decides what it can take: SGLang's `/server_info`, else the models.

Asks once and reads. What can't be read is None or empty: nothing here fails.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp

from gateway.feed.servedmodel import model_cards
from gateway.feed.session import ReplicaSession, read_document

_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One engine.

    grammar_backend: `xgrammar`, `llguidance`, `outlines`; None: not said.
    speculative:     it decodes speculatively. models, lora: the names of its models, and of adapters to them.
    """

    grammar_backend: str | None = None
    speculative: bool = False
    models: frozenset[str] = frozenset()
    lora: frozenset[str] = frozenset()


async def ask_facts(session: ReplicaSession, url: str, engine: str, timeout_s: float) -> ServerFacts | None:
    """The facts of the engine at `url` (without a trailing slash); None: it says nothing."""
    try:
        async with asyncio.timeout(timeout_s):
            models = await _document(session, f"{url}/v1/models")
            info = await _document(session, f"{url}/server_info") if engine == "sglang" else None
    except (aiohttp.ClientError, OSError, ValueError):
        return None
    return None if models is None and info is None else read_facts(info or {}, models or {})


def read_facts(info: dict[str, Any], models: dict[str, Any]) -> ServerFacts:
    """The facts in an answer of `/server_info` and one of `/v1/models`; either may be empty."""
    names = {card["id"]: card.get("parent") for card in model_cards(models) or ()}
    served = {name for name, parent in names.items() if parent is None}
    served.update(_text(info.get("served_model_name")))
    adapters = {name for name, parent in names.items() if parent is not None}
    adapters.update(_adapters(info.get("lora_paths")))
    backend = info.get("grammar_backend")
    return ServerFacts(
        grammar_backend=backend if isinstance(backend, str) and backend != "none" else None,
        speculative=info.get("speculative_algorithm") is not None,
        models=frozenset(served),
        lora=frozenset(adapters),
    )


def _text(value: object) -> list[str]:
    return [value] if isinstance(value, str) and value else []


def _adapters(paths: object) -> list[str]:
    """SGLang's `lora_paths`: a mapping by name, or a list of `name=path`, of paths, or of objects with a name."""
    if isinstance(paths, dict):
        return [str(name) for name in paths]
    names: list[str] = []
    for each in paths if isinstance(paths, list) else ():
        if isinstance(each, dict):
            names += _text(each.get("lora_name"))
        elif isinstance(each, str):
            names.append(each.partition("=")[0])
    return names


async def _document(session: ReplicaSession, url: str) -> dict[str, Any] | None:
    async with session.get(url, allow_redirects=False) as response:
        return await read_document(response, _MOST_BYTES)
