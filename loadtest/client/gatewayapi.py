"""What a Steplane gateway says on its admin port: which breakers opened, and what it predicted and observed."""

from datetime import datetime
from typing import Any

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=10)
_MOST = 200


class AdminError(Exception):
    """The admin port does not answer as it should; the text says what was expected."""


async def trips(admin: str, since: float) -> list[tuple[float, str]]:
    """Breakers that opened since that Unix time: seconds after it, and the key that opened. Raises AdminError."""
    document = await _get(f"{admin.rstrip('/')}/api/v1/audit?limit={_MOST}")
    opened = []
    for entry in document["entries"]:
        at = datetime.fromisoformat(entry["at"]).timestamp()
        if at >= since and entry["after"] == "open" != entry["before"]:
            opened.append((at - since, str(entry["key"])))
    return sorted(opened)


async def costs(admin: str) -> list[dict[str, Any]]:
    """The dearest signatures: `signature`, `steps` seen, and hook time a step, `predicted_us` and `observed_us`.

    Raises AdminError.
    """
    document = await _get(f"{admin.rstrip('/')}/api/v1/costs?top={_MOST}")
    return [
        {
            "signature": entry["signature"],
            "steps": entry["steps"],
            "observed_us": entry["mean_us"],
            "predicted_us": entry["predicted"]["step_us"],
        }
        for entry in document["costs"]
        if entry["predicted"]
    ]


async def _get(url: str) -> dict[str, Any]:
    try:
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session, session.get(url) as response:
            response.raise_for_status()
            document: dict[str, Any] = await response.json()
            return document
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise AdminError(f"{url} does not answer ({error}); expected the admin port of a Steplane gateway") from None
