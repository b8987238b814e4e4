"""Which models a replica says it serves: OpenAI's `/v1/models`, else SGLang's `/server_info`.

Only asks and reads. What it means that it is another model than expected is whoever asks's to say.
"""

import asyncio
from typing import Any

import aiohttp
import orjson

from gateway.feed.session import ReplicaSession

_LONGEST_BYTES = 1 << 20


async def served_models(session: ReplicaSession, url: str, timeout_s: float) -> tuple[str, ...] | None:
    """The names, adapters among them; None where the replica doesn't say. Raises nothing."""
    models = await _document(session, f"{url}/v1/models", timeout_s)
    listed = models.get("data") if models is not None else None
    if isinstance(listed, list):
        return tuple([each["id"] for each in listed if isinstance(each, dict) and isinstance(each.get("id"), str)])
    info = await _document(session, f"{url}/server_info", timeout_s)
    if info is None:
        return None
    names = [info[key] for key in ("served_model_name", "model_path") if isinstance(info.get(key), str)]
    return tuple(names) or None


async def _document(session: ReplicaSession, url: str, timeout_s: float) -> dict[str, Any] | None:
    try:
        async with asyncio.timeout(timeout_s), session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                return None
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _LONGEST_BYTES:
                    return None
            document = orjson.loads(body)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
