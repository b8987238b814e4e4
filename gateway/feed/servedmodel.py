"""Which models a replica says it serves: OpenAI's `/v1/models`, else SGLang's `/server_info`.

Only asks and reads. What it means that it is another model than expected is whoever asks's to say.
"""

import asyncio
from typing import Any

import aiohttp

from gateway.feed.session import ReplicaSession, read_document

_LONGEST_BYTES = 1 << 20


async def served_models(session: ReplicaSession, url: str, timeout_s: float) -> tuple[str, ...] | None:
    """The names, adapters among them; None where the replica doesn't say. Raises nothing."""
    models = await _document(session, f"{url}/v1/models", timeout_s)
    cards = model_cards(models)
    if cards is not None:
        return tuple([card["id"] for card in cards])
    info = await _document(session, f"{url}/server_info", timeout_s)
    if info is None:
        return None
    names = [info[key] for key in ("served_model_name", "model_path") if isinstance(info.get(key), str)]
    return tuple(names) or None


def model_cards(document: dict[str, Any] | None) -> list[dict[str, Any]] | None:
    """The models, each with a name, in an answer of `/v1/models`; None where it has no list of them."""
    listed = document.get("data") if document is not None else None
    if not isinstance(listed, list):
        return None
    return [each for each in listed if isinstance(each, dict) and isinstance(each.get("id"), str)]


async def _document(session: ReplicaSession, url: str, timeout_s: float) -> dict[str, Any] | None:
    try:
        async with asyncio.timeout(timeout_s), session.get(url, allow_redirects=False) as response:
            return await read_document(response, _LONGEST_BYTES)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return None
