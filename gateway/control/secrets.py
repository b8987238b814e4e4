"""Which values of a configuration are secret, and what is shown in their place.

By the name of the key, by what a URL carries, and by where the value came from: a file or the environment. Owns the
showing of a configuration to people; nothing else may print one.
"""

import re
from collections.abc import Generator, Mapping
from typing import Any

from pydantic import BaseModel

from gateway.control.document import Location
from gateway.hookcost.turns import at_once

HIDDEN = "•••"

_SECRET_KEY = re.compile(r"(?:^|_)(?:password|passphrase|token|secret|credentials?|api_key|apikey|keys?)$")
_RULES_HEADERS = "set_headers"
"""What a rule sets for engines may be a key, whatever the header's name."""
_COLLECTORS_HEADERS = ("tracing", "headers")
"""What the collector of traces is shown, as well."""
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def shown_value(location: Location, value: object, origins: Mapping[Location, str]) -> object:
    """A single value as people may see it; `location`: where it stands in the configuration."""
    if value is None or value == "" or isinstance(value, bool):
        return value
    if location in origins:
        return HIDDEN
    if isinstance(value, str):
        named = [step for step in location if isinstance(step, str)]
        if _RULES_HEADERS in named or tuple(named[:2]) == _COLLECTORS_HEADERS:
            return HIDDEN
        return HIDDEN if named and _SECRET_KEY.search(named[-1]) else _USERINFO.sub(HIDDEN, value)
    if isinstance(value, int | float):
        return value
    return str(value)


def shown_config(part: object, origins: Mapping[Location, str], location: Location = ()) -> Any:
    """A configuration, or a part of it, as plain data without secrets; defaults are spelled out."""
    return at_once(shown_config_in_turns(part, origins, location))


def shown_config_in_turns(
    part: object, origins: Mapping[Location, str], location: Location = ()
) -> Generator[None, None, Any]:
    """The same with a pause after each entry of a list: there may be thousands."""
    match part:
        case BaseModel():
            fields: dict[str, Any] = {}
            for name in type(part).model_fields:
                fields[name] = yield from shown_config_in_turns(getattr(part, name), origins, (*location, name))
            return fields
        case dict():
            items: dict[str, Any] = {}
            for key, value in part.items():
                items[str(key)] = yield from shown_config_in_turns(value, origins, (*location, key))
            return items
        case list() | tuple():
            entries: list[Any] = []
            for at, value in enumerate(part):
                entries.append((yield from shown_config_in_turns(value, origins, (*location, at))))
                yield
            return entries
    return shown_value(location, part, origins)
