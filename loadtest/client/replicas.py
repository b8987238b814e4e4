"""What is asked of replicas themselves, past every gateway."""

import asyncio
from collections.abc import Sequence

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=30)
_TRIES = 20
_AGAIN_S = 0.5
"""An engine refuses while something runs there."""


class ReplicaError(Exception):
    """A replica does not do what it is asked for; the text says which and what."""


async def forget(urls: Sequence[str]) -> None:
    """Have engines forget compiled grammars and prompts (SGLang's `/flush_cache`). Raises ReplicaError."""
    async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
        await asyncio.gather(*[_forget(session, f"{url.rstrip('/')}/flush_cache") for url in urls])


async def _forget(session: aiohttp.ClientSession, url: str) -> None:
    said = ""
    for _ in range(_TRIES):
        try:
            async with session.post(url) as response:
                if response.status == 200:
                    return
                said = f"{response.status} {(await response.text())[:200]}"
        except (aiohttp.ClientError, TimeoutError) as error:
            said = str(error) or type(error).__name__
        await asyncio.sleep(_AGAIN_S)
    raise ReplicaError(f"{url} does not have the caches emptied: {said}")
