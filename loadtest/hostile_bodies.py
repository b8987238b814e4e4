"""Request bodies made to hold a gateway's event loop up, each by another mechanism; a table of data.

None is large for its kind: each is about as much as the limits of classification let through. The benchmark prints the
longest turn of each, the tests count its work.
"""

from collections.abc import Callable
from typing import Any

import orjson

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
GENERATE, VERTEX = "/generate", "/vertex_generate"

Fields = dict[str, Any]
Body = tuple[str, Callable[[], bytes]]


def _chat(fields: Callable[[], Fields]) -> Body:
    return CHAT, lambda: orjson.dumps({"messages": [], **fields()})


def _at(path: str, fields: Callable[[], Fields]) -> Body:
    return path, lambda: orjson.dumps(fields())


def _schema(make: Callable[[], Fields]) -> Body:
    return _chat(lambda: {"guided_json": make()})


def _named(values: list[Any]) -> Fields:
    return {"type": "object", "properties": {f"n{index}": value for index, value in enumerate(values)}}


def _tools(count: int, **function: Any) -> Fields:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    each = [
        {"type": "function", "function": {"name": f"f{i}", "parameters": parameters, **function}} for i in range(count)
    ]
    return {"tools": each, "tool_choice": "required"}


def _tag(part: Callable[[int], Fields], count: int) -> Body:
    return _chat(lambda: {"structural_tag": {"format": {"elements": [part(index) for index in range(count)]}}})


def _nested(levels: int, wrap: Callable[[Any], Any], inner: Any) -> Any:
    for _ in range(levels):
        inner = wrap(inner)
    return inner


def _references(width: int, levels: int, keyword: str) -> Fields:
    """Definitions each of which names the next one `width` times: written out, width ** levels of them."""
    definitions: Fields = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * width, "title": "t"} for level in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "string"}
    return {"$defs": definitions, "oneOf": [{"$ref": "#/$defs/d0", "type": "string"}] * 2, "minLength": 1}


HOSTILE: dict[str, Body] = {
    # Tools and structural tags.
    "two thousand tools": _chat(lambda: _tools(2000)),
    "tools with schemas as text": _chat(lambda: _tools(1500, parameters='{"type": "object", "properties": {"a": {}}}')),
    "tools for the model to choose": _chat(lambda: {**_tools(2000), "tool_choice": "auto"}),
    "empty tools": _chat(lambda: {"tools": [{}] * 80_000}),
    "tools in each message": _chat(
        lambda: {"messages": [{"role": "system", "content": "", "tools": _tools(1)["tools"]} for _ in range(1500)]}
    ),
    "a tag of 1,400 schemas": _tag(lambda i: {"json_schema": {"type": "object", "properties": {f"a{i}": {}}}}, 1400),
    "a tag of 1,400 regexes": _tag(lambda i: {"type": "regex", "pattern": f"([a-z]{{1,{i + 1}}}x)+(a|b)*[A-Z]"}, 1400),
    "a tag of dense regexes": _tag(lambda i: {"type": "regex", "pattern": f"(a|b){{1,{i + 1}}}" * 40}, 250),
    "a tag of 1,400 grammars": _tag(
        lambda i: {"type": "grammar", "grammar": f'root ::= "a" [b-z]+ | "{i}" root'}, 1400
    ),
    "a tag of dense grammars": _tag(lambda i: {"type": "grammar", "grammar": f"root ::= {'a? ' * 400}b{i}"}, 60),
    "a tag of too many parts": _tag(lambda _: {"type": "regex", "pattern": "a"}, 4000),
    "a tag of empty lists": _tag(lambda _: {"elements": []}, 1400),
    # Schemas.
    "a list of values": _schema(lambda: {"enum": [f"value {i}" for i in range(10_000)]}),
    "a list of numbers": _schema(lambda: {"enum": list(range(20_000))}),
    "a list of objects": _schema(lambda: {"enum": [{"a": [i]} for i in range(10_000)]}),
    "a constant of 10,000 objects": _schema(lambda: {"const": [{"a": [i]} for i in range(10_000)]}),
    "a union of 8,000": _schema(lambda: {"anyOf": [{"type": ["string", "null"]}] * 8000}),
    "a union of 1,000 objects": _schema(
        lambda: {"oneOf": [{"type": "object", "properties": {f"k{i}": {}}} for i in range(1000)]}
    ),
    "a union of lists of values": _schema(
        lambda: {"oneOf": [{"enum": [f"{i}.{j}" for j in range(150)]} for i in range(60)]}
    ),
    "a union told apart by the last of many properties": _schema(
        lambda: {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {f"p{j}": {"enum": [j if j < 39 else i]} for j in range(40)},
                    "required": [f"p{j}" for j in range(40)],
                }
                for i in range(50)
            ]
        }
    ),
    "unions of references to unions": _schema(lambda: _references(700, 4, "anyOf")),
    "merges of references to merges": _schema(lambda: _references(700, 4, "allOf")),
    "10,000 places": _schema(lambda: {"type": "array", "prefixItems": [{"type": "integer"}] * 10_000}),
    "1,000 open names": _schema(
        lambda: {
            "type": "object",
            "additionalProperties": True,
            "properties": {f"{'x' * 100}{i}": {} for i in range(1000)},
        }
    ),
    "1,000 wrapped values": _schema(
        lambda: _named([_nested(6, lambda inner: {"allOf": [inner]}, {"type": "string"})] * 900)
    ),
    "1,000 counted names": _schema(
        lambda: {**_named([{"type": "string"}] * 1000), "minProperties": 2, "maxProperties": 500}
    ),
    "objects of 30 names": _schema(
        lambda: {"anyOf": [_named([{"type": "string"}] * 30) for _ in range(100)]},
    ),
    "required names": _schema(lambda: {"type": ["object"] * 16, "required": [f"n{i}" for i in range(10_000)]}),
    "patterns of names": _schema(
        lambda: {"type": "object", "patternProperties": {f"^a{i}": {} for i in range(8000)}},
    ),
    "unknown keywords": _schema(lambda: {**{f"x{i}": i for i in range(10_000)}, "type": ["string"] * 16}),
    "chains of `allOf`": _schema(
        lambda: _named([_nested(40, lambda inner: {"allOf": [inner]}, {"type": "integer"})] * 200)
    ),
    "nested unions": _schema(
        lambda: _nested(10, lambda inner: {"anyOf": [inner, inner]}, {"type": "string", "minLength": 1})
    ),
    "900 patterns": _schema(
        lambda: _named([{"type": "string", "pattern": f"([a-z]{{1,{i + 1}}}x)+y{{2,9}}(a|b)"} for i in range(900)])
    ),
    "dense patterns": _schema(
        lambda: _named([{"type": "string", "pattern": f"(a|b){{1,{i + 1}}}" * 40} for i in range(250)])
    ),
    "long brackets": _schema(
        lambda: _named([{"type": "string", "pattern": f"[{'a-z' * 190}{i}]"} for i in range(150)])
    ),
    "long lists of types": _schema(
        lambda: {"anyOf": [{"type": ["string"] * 16, "pattern": f"a{i}"} for i in range(900)]}
    ),
    "names of types": _schema(lambda: _named([{"type": f"varchar({i})"} for i in range(1000)])),
    "a chain of references": _schema(
        lambda: {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(2000)}, "$ref": "#/$defs/d0"}
    ),
    "references by name": _schema(
        lambda: {
            "$defs": {f"d{i}": {"$anchor": f"a{i}", "type": "null"} for i in range(900)},
            **_named([{"$ref": f"#a{i}"} for i in range(900)]),
        }
    ),
    "references to documents": _schema(
        lambda: {
            "$id": "http://x.org/root.json",
            "$defs": {f"d{i}": {"$id": f"d{i}.json", "type": "null"} for i in range(1500)},
            **_named([{"$ref": f"http://x.org/d{i}.json"} for i in range(900)]),
        }
    ),
    "references of many steps": _schema(
        lambda: {
            **_nested(200, lambda inner: {"a": inner}, {"type": "null"}),
            **_named([{"$ref": "#" + "/a" * (i % 200)} for i in range(200)]),
        }
    ),
    "a reference of 40,000 steps": _schema(lambda: {"$ref": "#/properties" + "/%20" * 40_000, "properties": {}}),
    "a schema as text, of empty lists": _chat(lambda: {"guided_json": '{"x":[%s[]]}' % ("[]," * 85_000)}),
    "a schema as text, of just few enough parts": _chat(lambda: {"guided_json": '{"enum":[%s[]]}' % ("[]," * 19_900)}),
    # Regexes and raw grammars.
    "a regex of spaces in a count": _chat(lambda: {"guided_regex": "a{" + " " * 60_000 + "x"}),
    "a regex of open counts": _chat(lambda: {"guided_regex": ("a{" + " " * 200) * 300}),
    "a dense regex": _chat(lambda: {"guided_regex": "(a|b)*" * 90}),
    "nested groups": _chat(lambda: {"guided_regex": "(" * 250 + "[ab]" * 90 + ")" * 250}),
    "nested repetitions": _chat(lambda: {"guided_regex": "(" * 30 + "[ab]" * 15 + ")+" * 30}),
    "names of groups that are not closed": _chat(lambda: {"guided_regex": "\\k<a" * 500 + "a" * 60_000}),
    "a grammar of open brackets": _chat(lambda: {"guided_grammar": "root ::= " + "[" * 35_000}),
    "a grammar of open strings": _chat(lambda: {"guided_grammar": "root ::= " + "'\\\"\n" * 15_000}),
    "a grammar of spaces in a count": _chat(lambda: {"guided_grammar": "root ::= a{" + " " * 60_000 + "x"}),
    "a grammar of spaces": _chat(lambda: {"guided_grammar": "root ::= " + ("a" + " " * 40) * 1400}),
    "a grammar of 1,400 rules": _chat(lambda: {"guided_grammar": "\n".join(f"r{i}::=r{i + 1}" for i in range(700))}),
    "groups of names": _chat(lambda: {"guided_grammar": "root ::= " + "(a " * 250 + ")* " * 250}),
    # Stop conditions and samplers.
    "3,000 stop expressions": _chat(lambda: {"stop_regex": [f"[a-z]{{1,{i + 1}}}x(a|b)+c" for i in range(3000)]}),
    "dense stop expressions": _chat(lambda: {"stop_regex": [f"{'(a|b)' * 90}{i}" for i in range(300)]}),
    "10,000 stop tokens": _chat(lambda: {"stop_token_ids": list(range(10_000))}),
    "10,000 stop tokens as text": _chat(lambda: {"stop_token_ids": [str(i) for i in range(10_000)]}),
    "20,000 stop strings": _chat(lambda: {"stop": ["é"] * 20_000}),
    "20,000 stop strings and nulls": _chat(lambda: {"stop": ["a", None] * 10_000}),
    "40,000 allowed tokens": _chat(lambda: {"allowed_token_ids": [i % 100 for i in range(40_000)]}),
    "10,000 biases": _chat(lambda: {"logit_bias": {str(i): 1 for i in range(10_000)}}),
    "10,000 biases as text": _chat(lambda: {"logit_bias": {f" {i}": "1.5" for i in range(8_000)}}),
    "10,000 biases that are wrong": _chat(lambda: {"logit_bias": {**{str(i): 1 for i in range(10_000)}, "x": 1}}),
    "20,000 bad words": _chat(lambda: {"bad_words": ["a"] * 20_000}),
    "30,000 choices": _chat(lambda: {"guided_choice": ["a"] * 30_000}),
    "30,000 choices beyond ASCII": _chat(lambda: {"guided_choice": ["é"] * 20_000}),
    "processors": _chat(lambda: {"custom_logit_processor": ["a", None] * 10_000}),
    "hidden states": _chat(lambda: {"return_hidden_states": [False] * 20_000}),
    "request ids": _chat(lambda: {"rid": ["a"] * 30_000}),
    # Batches.
    "2,000 sets of parameters": _at(
        GENERATE,
        lambda: {
            "text": ["a"] * 2000,
            "sampling_params": [{"n": "1", "stop": "a", "top_k": 5, "min_tokens": 0} for _ in range(2000)],
        },
    ),
    "20,000 empty sets": _at(GENERATE, lambda: {"text": "a", "sampling_params": [{"n": 1}] * 20_000}),
    "1,000 sets with a schema each": _at(
        GENERATE,
        lambda: {
            "text": ["a"] * 1000,
            "sampling_params": [{"json_schema": f'{{"type":"string","minLength":{i}}}'} for i in range(1000)],
        },
    ),
    "1,000 sets with the same schema": _at(
        GENERATE,
        lambda: {"text": ["a"] * 1500, "sampling_params": [{"json_schema": '{"type":"string"}'}] * 1500},
    ),
    "logprobs for each prompt": _at(
        GENERATE,
        lambda: {
            "text": ["a"] * 4000,
            "return_logprob": [True] * 4000,
            "top_logprobs_num": ["1"] * 4000,
            "logprob_start_len": [0] * 4000,
            "token_ids_logprob": [[1, 2]] * 4000,
        },
    ),
    "30,000 prompts": _at(COMPLETIONS, lambda: {"prompt": ["é"] * 20_000}),
    "30,000 prompts of tokens": _at(COMPLETIONS, lambda: {"prompt": [[1]] * 25_000}),
    "10,000 instances": _at(VERTEX, lambda: {"instances": [{"text": "a"}] * 9_000, "parameters": {"regex": "a"}}),
    "10,000 messages": _chat(lambda: {"messages": [{"content": "é"}] * 7_000}),
    "10,000 messages and a grammar": _chat(lambda: {"messages": [{"content": "a"}] * 7_000, "guided_regex": "a+"}),
    "10,000 parts of messages": _chat(
        lambda: {"messages": [{"content": [{"type": "text", "text": "a"}] * 4_000}], "n": 2}
    ),
    "10,000 things to include": _at(RESPONSES, lambda: {"input": "", "include": ["a"] * 30_000}),
    # Bodies as such.
    "10,000 unknown fields": _chat(lambda: {f"x{i}": i for i in range(10_000)}),
    "10,000 fields beside": _chat(lambda: {"extra_body": {f"x{i}": i for i in range(10_000)}}),
    "empty lists": _chat(lambda: {"x": [[]] * 40_000}),
    "empty objects": _chat(lambda: {"x": [{}] * 40_000}),
    "a schema of empty lists": _chat(lambda: {"guided_json": {"x": [[]] * 40_000}}),
    "empty lists under twenty others": _chat(lambda: {"x": _nested(20, lambda inner: [inner, 1], [[]] * 19_000)}),
    "empty lists under a hundred others": _chat(lambda: {"x": _nested(100, lambda inner: [inner, 1], [[]] * 70_000)}),
    "small objects": _chat(lambda: {"user": [{"a": 1}] * 15_000}),
    "keys of 60 KB": (
        CHAT,
        lambda: b'{"messages":[],%b}' % b",".join(b'"%d%b":1' % (i, b"x" * 60_000) for i in range(160)),
    ),
    "fields of 1 MB": (
        CHAT,
        lambda: b'{"messages":[],%b}' % b",".join(b'"%d":"%b"' % (i, b"x" * 1_000_000) for i in range(30)),
    ),
    "quotes": _chat(lambda: {"messages": [{"content": '\\"' * 300_000}], "guided_regex": "a+"}),
    "brackets": (CHAT, lambda: b'{"messages":%b%b}' % (b"[" * 1_000_000, b"]" * 1_000_000)),
    "40 MiB of images": _chat(
        lambda: {
            "messages": [{"content": [{"image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 750_000}}] * 5}]
        }
    ),
}
"""By name: the path, and what makes the body."""
