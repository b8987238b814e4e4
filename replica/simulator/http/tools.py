"""Tool calls: the grammar that forces them, and the way back from the forced JSON to `tool_calls`.

A required or named choice becomes a JSON array of `{"name", "parameters"}` (SGLang's `get_json_schema_constraint`).
With `auto` the pseudo-model answers in plain text: it has no opinion, so it never calls a tool by itself.
"""

import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from replica.simulator.http.bodies import ChatBody, Tool, ToolChoice
from replica.simulator.http.errors import RequestError


def forces_tools(body: ChatBody) -> bool:
    return body.tool_choice == "required" or isinstance(body.tool_choice, ToolChoice)


def tools_schema(body: ChatBody) -> str | None:
    """The JSON schema of a forced choice, or None where nothing is forced. Raises RequestError."""
    if not forces_tools(body):
        return None
    tools = body.tools or []
    if isinstance(body.tool_choice, ToolChoice):
        name = body.tool_choice.function.name
        if not tools:
            raise RequestError("Tools cannot be empty if tool choice is set to a specific tool.")
        tools = [tool for tool in tools if tool.function.name == name]
        if not tools:
            raise RequestError(f"Tool '{name}' not found in tools list.")
        items = _call_schema(tools[0])
    else:
        if not tools:
            raise RequestError("Tools cannot be empty if tool choice is set to required.")
        items = {"type": "object", "anyOf": [_call_schema(tool) for tool in tools]}
    schema: dict[str, Any] = {"type": "array", "minItems": 1, "items": items}
    if not body.parallel_tool_calls:
        schema["maxItems"] = 1
    definitions = _definitions(tools)
    if definitions:
        schema["$defs"] = definitions
    return json.dumps(schema)


def parse_calls(text: str) -> list[dict[str, Any]] | None:
    """`tool_calls` of a complete reply, or None if it is no list of calls: it was cut by its length."""
    try:
        calls = json.loads(text)
    except ValueError:
        return None
    if not isinstance(calls, list) or not all(isinstance(c, dict) and "name" in c for c in calls):
        return None
    return [
        call_object(i, call_id(), call["name"], json.dumps(call.get("parameters", {}), ensure_ascii=False))
        for i, call in enumerate(calls)
    ]


def call_id() -> str:
    return f"call_{uuid4().hex[:24]}"


def call_object(index: int, identity: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    return {
        "id": identity,
        "index": index,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a call: the first has the name and no arguments, the others arguments only."""

    index: int
    name: str | None
    arguments: str


class CallStream:
    """Splits a growing JSON array of calls into deltas, character by character.

    The grammar fixes its layout to `[{"name":…,"parameters":…},…]`, possibly with whitespace between tokens. Arguments
    are spelled as Python's `json.dumps` spells them, like those of a reply that does not stream.
    """

    def __init__(self) -> None:
        self._index = -1
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._string = ""
        self._key: str | None = None
        self._arguments = False

    @property
    def calls(self) -> int:
        return self._index + 1

    def feed(self, text: str) -> list[CallDelta]:
        """Deltas that the text completes."""
        deltas: list[CallDelta] = []
        pending = ""
        for character in text:
            before = self._arguments
            name = self._advance(character)
            if name is not None:
                deltas.append(CallDelta(self._index, name, ""))
            if before and self._arguments:
                pending += self._respelled(character)
            elif pending:
                deltas.append(CallDelta(self._index, None, pending))
                pending = ""
        if pending:
            deltas.append(CallDelta(self._index, None, pending))
        return deltas

    def _respelled(self, character: str) -> str:
        if self._in_string or character == '"':
            return character
        if character in ":,":
            return character + " "
        return "" if character.isspace() else character

    def _advance(self, character: str) -> str | None:
        """Move by one character; the name of a call where it ends here."""
        if self._in_string:
            return self._advance_in_string(character)
        if character == '"':
            self._in_string = True
            self._string = ""
        elif character in "{[":
            self._depth += 1
            if self._depth == 2:
                self._index += 1
                self._key = None
        elif character in "}]":
            self._depth -= 1
            if self._depth == 1:
                self._arguments = False
        elif character == "," and self._depth == 2:
            self._key = None
            self._arguments = False
        elif character == ":" and self._depth == 2 and self._key == "parameters":
            self._arguments = True
        return None

    def _advance_in_string(self, character: str) -> str | None:
        if self._escaped:
            self._escaped = False
            self._string += character
        elif character == "\\":
            self._escaped = True
            self._string += character
        elif character == '"':
            self._in_string = False
            if self._depth == 2 and not self._arguments:
                return self._close_string()
        else:
            self._string += character
        return None

    def _close_string(self) -> str | None:
        value = str(json.loads(f'"{self._string}"'))
        if self._key is None:
            self._key = value
            return None
        return value if self._key == "name" else None


def _call_schema(tool: Tool) -> dict[str, Any]:
    return {
        # SGLang leaves these two out: to xgrammar `properties` means an object; llguidance would allow strings, too.
        # More properties, or others first, are what a model does not think of; a pseudo-model would.
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "enum": [tool.function.name]},
            "parameters": _without_definitions(tool.function.parameters) or {"type": "object", "properties": {}},
        },
        "required": ["name", "parameters"],
    }


def _definitions(tools: list[Tool]) -> dict[str, Any]:
    """All tools' `$defs`, moved to the root where `#/$defs/…` finds them. Raises RequestError for a contradiction."""
    merged: dict[str, Any] = {}
    for tool in tools:
        parameters = tool.function.parameters
        for name, schema in (parameters.get("$defs") or {}).items() if isinstance(parameters, dict) else ():
            if merged.setdefault(name, schema) != schema:
                raise RequestError(f"Tool definition '{name}' has multiple schemas, which is not supported.")
    return merged


def _without_definitions(parameters: Any) -> Any:
    if not isinstance(parameters, dict):
        return parameters
    return {key: value for key, value in parameters.items() if key != "$defs"}
