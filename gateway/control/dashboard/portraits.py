"""What requests of a signature that people see look like: the title of their schema, sizes, and the dearest place.

Taken of a body while somebody has it, a turn of a millisecond at a time, once for each signature; the body is let go of
then. Keeps no text of a prompt and none of a schema but its title.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog

from gateway.control.inturns import in_turns
from gateway.hookcost import Classification, api_of
from gateway.hookcost.body import parse
from gateway.hookcost.explain import explain_in_turns
from gateway.hookcost.features import Features
from gateway.hookcost.prices import CostModel
from gateway.hookcost.reading import read_body
from gateway.hookcost.turns import at_once

log = structlog.get_logger("steplane.dashboard")

_SIGNATURES = 512
_LONGEST_TITLE = 120
_LARGEST_BODY_BYTES = 256 * 1024
"""Of a larger one only the features are shown."""


@dataclass(frozen=True, slots=True)
class Portrait:
    """One signature, by the first of its requests that was looked at.

    title:   of its schema, "" where it has none. features: those that are not the default.
    predicted_us, predicted_ms: what its hooks were expected to take of a step, and its grammar to compile.
    place:   the dearest of the grammar: `param`, `pointer`, `mechanism`, `step_us`, `compile_ms`, `advice`; or None.
    """

    title: str
    features: Mapping[str, Any]
    predicted_us: float
    predicted_ms: float
    place: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Prices:
    """The price list, and which of its backends counts, in which version."""

    model: CostModel
    backend: str
    version: str | None


class Portraits:
    """Of one gateway; belongs to its event loop. `prices`: by what places are found now; None: they are not.

    want: asks whoever carries requests to have one of each of these signatures `seen`.
    """

    def __init__(self) -> None:
        self.want: Callable[[Iterable[str]], None] = _nobody_comes
        self._known: OrderedDict[str, Portrait] = OrderedDict()
        self.prices: Callable[[], Prices] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def of(self, signature: str) -> Portrait | None:
        """What is known of a signature."""
        return self._known.get(signature)

    def seen(self, classification: Classification, path: str, body: bytes) -> None:
        """A request of a barred signature is at hand; harmless, and cheap, where it is known already."""
        signature = classification.signature
        if signature in self._known:
            return
        expected = classification.predicted or classification.cost
        step_us, compile_ms = round(expected.step_us, 1), round(expected.compile_ms, 2)
        portrait = Portrait("", shown_features(classification.features), step_us, compile_ms, None)
        self._known[signature] = portrait
        if len(self._known) > _SIGNATURES:
            self._known.popitem(last=False)
        if self.prices is not None and len(body) <= _LARGEST_BODY_BYTES:
            task = asyncio.get_running_loop().create_task(self._take(signature, portrait, path, body, self.prices()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _take(self, signature: str, portrait: Portrait, path: str, body: bytes, prices: Prices) -> None:
        try:
            turns = explain_in_turns(prices.model, path, body, prices.backend, prices.version)
            places = (await in_turns(turns)).places
            title = title_of(path, body)
        except Exception:
            log.exception("portrait_failed", signature=signature)
            return
        place = asdict(places[0]) if places else None
        self._known[signature] = replace(portrait, title=title, place=place)


def _nobody_comes(_signatures: Iterable[str]) -> None:
    """Without a data plane there is nobody to be seen."""


def title_of(path: str, body: bytes) -> str:
    """The title of the body's schema; of several that of the first, and how many there are more."""
    parsed = parse(body)
    if not isinstance(parsed, dict):
        return ""
    constraints = at_once(read_body(api_of(path), parsed, len(body))).constraints
    titles = [
        value["title"]
        for each in constraints
        for value in (each.value if isinstance(each.value, list) else [each.value])
        if isinstance(value, dict) and isinstance(value.get("title"), str)
    ] or _names(parsed)
    if not titles:
        return ""
    more = f" and {len(titles) - 1} more" if len(titles) > 1 else ""
    first: str = titles[0]
    return (first if len(first) <= _LONGEST_TITLE else f"{first[:_LONGEST_TITLE]}…") + more


def _names(body: Mapping[str, object]) -> list[str]:
    """What a client of OpenAI's calls its schema, beside it."""
    form = body.get("response_format")
    schema = form.get("json_schema") if isinstance(form, dict) else None
    name = schema.get("name") if isinstance(schema, dict) else None
    return [name] if isinstance(name, str) else []


_PLAIN = asdict(Features())


def shown_features(features: Features) -> dict[str, Any]:
    """The features that are not as in a plain request."""
    return {name: value for name, value in asdict(features).items() if value != _PLAIN[name]}
