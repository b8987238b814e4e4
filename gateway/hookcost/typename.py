"""Names of types that are none of JSON Schema's, as SGLang rewrites them in tool schemas before it compiles them.

Tools exported from databases and ORMs say `varchar` or `dict`. SGLang 0.5.23 (`function_call/utils.py`,
`normalize_json_schema_types`) takes them for the nearest type, so that a dear object must not hide behind such a name.
"""

import re

TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_BY_NAME = {
    "string": "str text varchar char enum uuid date datetime time timestamp binary blob bytea bytes varbinary",
    "boolean": "bool",
    "integer": "bigint smallint tinyint",
    "number": "double decimal real numeric",
    "array": "arr tuple set",
    "object": "map",
}
_ALIASES = {alias: name for name, aliases in _BY_NAME.items() for alias in aliases.split()}
_PARAMETERISED = (
    (re.compile(r"(?:int|uint|long|short|unsigned)(?:$|[0-9\[<( \t])"), "integer"),
    (re.compile(r"(?:num|float)(?:$|[0-9\[<( \t])"), "number"),
    (re.compile(r"list(?:$|[0-9\[<( \t])"), "array"),
    (re.compile(r"dict(?:$|[0-9\[<( \t])"), "object"),
)


def standard_type(name: str) -> str | None:
    """The JSON Schema type that an engine may take `name` for, or None."""
    if name in TYPES:
        return name
    base = name[:64].partition("(")[0].strip().lower()
    if base in TYPES:
        return base
    if base in _ALIASES:
        return _ALIASES[base]
    return next((kind for pattern, kind in _PARAMETERISED if pattern.match(base)), None)
