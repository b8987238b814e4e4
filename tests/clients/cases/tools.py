"""Tool calls: left to the model, required, and by name; streaming and not."""

import json
from typing import Any

import jsonschema
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.chat.chat_completion_message_tool_call import Function

from tests.clients.case import MODEL, CaseTable, Client

CASES = CaseTable()
ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Steer the boat."}]
TOKENS = 96
PARAMETERS: dict[str, dict[str, Any]] = {
    "steer": {
        "type": "object",
        "properties": {"side": {"enum": ["port", "starboard"]}, "hard": {"type": "boolean"}},
        "required": ["side", "hard"],
        "additionalProperties": False,
    },
    "anchor": {
        "type": "object",
        "properties": {"drop": {"type": "boolean"}},
        "required": ["drop"],
        "additionalProperties": False,
    },
}
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {"name": name, "description": f"{name} the boat", "strict": True, "parameters": parameters},
    }
    for name, parameters in PARAMETERS.items()
]


def only_call(reply: ChatCompletion) -> Function:
    """What the one tool call of a reply says."""
    calls = reply.choices[0].message.tool_calls
    assert calls is not None
    assert len(calls) == 1
    assert calls[0].type == "function"
    return calls[0].function


@CASES.case("tools left to the model")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=8, temperature=0, tools=TOOLS, tool_choice="auto"
    )
    assert reply.choices[0].message.content or reply.choices[0].message.tool_calls


@CASES.case("a tool call that is required")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL,
        messages=ASK,
        max_tokens=TOKENS,
        temperature=0,
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=False,
    )
    function = only_call(reply)
    jsonschema.validate(json.loads(function.arguments), PARAMETERS[function.name])


@CASES.case("a tool call by name")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL,
        messages=ASK,
        max_tokens=TOKENS,
        temperature=0,
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "anchor"}},
        parallel_tool_calls=False,
    )
    function = only_call(reply)
    assert function.name == "anchor"
    jsonschema.validate(json.loads(function.arguments), PARAMETERS["anchor"])


@CASES.case("a tool call by name as a stream")
def _(client: Client) -> None:
    with client.openai.chat.completions.create(
        model=MODEL,
        messages=ASK,
        max_tokens=TOKENS,
        temperature=0,
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "steer"}},
        parallel_tool_calls=False,
        stream=True,
    ) as stream:
        chunks = list(stream)
    parts = [part for chunk in chunks for choice in chunk.choices for part in choice.delta.tool_calls or ()]
    assert "".join(part.function.name or "" for part in parts if part.function) == "steer"
    arguments = "".join(part.function.arguments or "" for part in parts if part.function)
    jsonschema.validate(json.loads(arguments), PARAMETERS["steer"])


@CASES.case("the answer of a tool goes back to the model")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL,
        messages=[
            *ASK,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "anchor", "arguments": '{"drop": true}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "dropped"},
        ],
        max_tokens=8,
        temperature=0,
        tools=TOOLS,
        tool_choice="none",
    )
    assert reply.choices[0].message.content
