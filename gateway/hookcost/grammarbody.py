"""The least body that has an engine compile the grammar of another: its constraint as it came, and one token to write.

Owns where each dialect keeps what constrains an answer. Nothing of the prompt is in it but the tools, where they are
the grammar. Pure, and only for grammars that are kept: about 7 µs.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from gateway.hookcost.constraint import DOORS
from gateway.hookcost.features import Api
from gateway.hookcost.objecttext import UNREADABLE, fields_of
from gateway.hookcost.spellings import SAMPLING_PARAMS, output_limit

_DOORS: Final = frozenset((*DOORS, "structured_outputs"))
_TOOLS: Final = frozenset(("tools", "tool_choice", "strict_tools", "parallel_tool_calls"))
_FORMAT: Final = frozenset(("format",))
_WHOLE: Final = _DOORS | _TOOLS | {"model"}
"""Fields that are kept as they came; engines that serve adapters want the model, too."""
_WITHIN: Final[Mapping[Api, Mapping[str, Collection[str]]]] = {
    Api.chat: {"extra_body": _DOORS, SAMPLING_PARAMS: _DOORS},
    Api.completions: {"extra_body": _DOORS, SAMPLING_PARAMS: _DOORS},
    Api.responses: {"extra_body": _DOORS, SAMPLING_PARAMS: _DOORS, "text": _FORMAT},
    Api.messages: {"extra_body": _DOORS, SAMPLING_PARAMS: _DOORS, "output_config": _FORMAT},
    Api.generate: {"extra_body": _DOORS, SAMPLING_PARAMS: _DOORS},
}
"""Fields of which a part is kept."""
_MESSAGES: Final = {"messages": b'[{"role":"user","content":"."}]'}
_PROMPTS: Final[Mapping[Api, Mapping[str, bytes]]] = {
    Api.chat: _MESSAGES,
    Api.completions: {"prompt": b'"."'},
    Api.responses: {"input": b'"."', "store": b"false"},
    Api.messages: _MESSAGES,
    Api.generate: {"text": b'"."'},
}
_TOKENS: Final = {"token_ids": b"[0]"}
"""The prompt where an engine takes tokens alone (vLLM's `/inference/v1/generate`)."""


def grammar_body(api: Api, engine: str, body: bytes) -> bytes | None:
    """A body for the same path and engine that asks for one token under the same grammar.

    None where the body has none, or has it in a place from which it can't be taken alone (a batch with parameters for
    each prompt, say). Whether the engine would read the same grammar in both is for the classifier to tell.
    """
    within = _WITHIN.get(api)
    if within is None:
        return None
    try:
        fields = fields_of(body)
        kept = {name: value for name, value in fields.items() if name in _WHOLE and value != b"null"}
        for name, wanted in within.items():
            held = fields.get(name, b"null")
            inner = {} if held == b"null" else fields_of(held)
            inner = {each: value for each, value in inner.items() if each in wanted}
            if inner:
                kept[name] = _object(inner)
        if kept.keys() <= {"model"}:
            return None
        holder, limit = output_limit(api, engine)
        if holder:
            kept[holder] = _object({**(fields_of(kept[holder]) if holder in kept else {}), limit: b"1"})
        else:
            kept[limit] = b"1"
    except UNREADABLE:
        return None
    return _object({**kept, **(_TOKENS if "token_ids" in fields else _PROMPTS[api])})


def _object(fields: Mapping[str, bytes]) -> bytes:
    return b"{%b}" % b",".join([b"%b:%b" % (msgspec.json.encode(name), value) for name, value in fields.items()])
