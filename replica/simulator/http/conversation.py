"""From chat messages to a prompt: Qwen's ChatML template, tools in the system message."""

import json

from replica.simulator.http.bodies import ChatBody, Message
from replica.simulator.http.errors import RequestError

_DEFAULT_SYSTEM = "You are a helpful assistant."
_MEDIA = ("image_url", "video_url", "audio_url", "input_audio")


def prompt_text(body: ChatBody) -> str:
    """The whole prompt, ready for the assistant's turn. Raises RequestError for content that is not text."""
    messages = list(body.messages)
    system = _DEFAULT_SYSTEM
    if messages[0].role in ("system", "developer"):
        system = content_text(messages.pop(0))
    if body.tools and body.tool_choice != "none":
        tools = "\n".join(json.dumps(tool.model_dump(exclude_none=True)) for tool in body.tools)
        system += f"\n\n# Tools\n\nYou may call one or more functions.\n<tools>\n{tools}\n</tools>"
    turns = [_turn("system", system)]
    turns += [_turn(m.role, content_text(m) + _calls_text(m)) for m in messages]
    return "".join(turns) + "<|im_start|>assistant\n"


def content_text(message: Message) -> str:
    if message.content is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    for part in message.content:
        if part.type in _MEDIA:
            raise RequestError(f"Model only supports text input; received unsupported content type '{part.type}'.")
    return "".join(part.text or "" for part in message.content)


def _turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def _calls_text(message: Message) -> str:
    calls = message.tool_calls or ()
    return "".join(f"\n<tool_call>\n{json.dumps(call.function.model_dump())}\n</tool_call>" for call in calls)
