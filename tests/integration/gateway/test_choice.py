"""Which pool a request goes to, and that no spelling of it goes elsewhere."""

from typing import Any

import pytest

from .harness import CHAT, COMPLETIONS, GENERATE, MESSAGES, PLAIN, RESPONSES, house

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
OPENAI = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
EBNF = 'root ::= "a" | "b"'


@pytest.mark.parametrize("path", PLAIN)
async def test_a_plain_request_goes_to_the_default_pool(path: str) -> None:
    async with house() as running:
        answer = await running.ask(path, PLAIN[path])
        assert (answer.header(b"x-steplane-pool"), answer.header(b"x-steplane-route")) == (b"interactive", b"plain")


@pytest.mark.parametrize(
    ("path", "fields", "pool"),
    [
        (CHAT, OPENAI, "grammar"),
        (CHAT, {"structured_outputs": {"json": SCHEMA}}, "grammar"),
        (CHAT, {"guided_json": SCHEMA}, "grammar"),
        (CHAT, {"extra_body": {"guided_json": SCHEMA}}, "grammar"),
        (COMPLETIONS, {"json_schema": "{}"}, "grammar"),
        (COMPLETIONS, {"guided_json": SCHEMA}, "grammar"),
        (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}, "grammar"),
        (MESSAGES, {"output_format": {"type": "json_schema", "schema": SCHEMA}}, "grammar"),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "grammar"),
        (GENERATE, {"sampling_params": {"json_schema": "{}"}}, "grammar"),
        (CHAT, {"ebnf": EBNF}, "quarantine"),
        (CHAT, {"guided_grammar": EBNF}, "quarantine"),
        (CHAT, {"regex": "a+"}, "quarantine"),
        (COMPLETIONS, {"structured_outputs": {"grammar": EBNF}}, "quarantine"),
        (RESPONSES, {"ebnf": EBNF}, "quarantine"),
        (GENERATE, {"sampling_params": {"ebnf": EBNF}}, "quarantine"),
        (GENERATE, {"text": ["a", "b"], "sampling_params": [{}, {"regex": "a+"}]}, "quarantine"),
    ],
)
async def test_a_grammar_goes_where_its_kind_belongs(path: str, fields: dict[str, Any], pool: str) -> None:
    async with house() as running:
        answer = await running.ask(path, {**PLAIN[path], **fields})
        assert answer.header(b"x-steplane-pool") == pool.encode()
        assert answer.header(b"x-steplane-replica") == f"{pool}-0".encode()


@pytest.mark.parametrize(
    "spelling",
    [
        "/v1/chat/completions/",
        "/v1/chat/completions?x=1",
        "/v1/chat/%63ompletions",
        "/v1%2fchat%2Fcompletions",
        "/%76%31/chat/completions",
        "/v1/chat/completions%2F",
        "/v1/chat/completions//?",
        "http://elsewhere/v1/chat/completions",
        "HTTP://a/v1/chat/completions/?y",
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_no_spelling_of_a_path_evades_the_rules(spelling: str, method: str) -> None:
    async with house() as running:
        answer = await running.ask(spelling, {**PLAIN[CHAT], "ebnf": EBNF}, method=method)
        assert answer.header(b"x-steplane-pool") == b"quarantine"


@pytest.mark.parametrize(
    "fields",
    [
        rb'"respon\u0073e_format":{"type":"json_\u0073chema","json_schema":{"name":"x","schema":{}}}',
        rb'"response_format":null,"response_format":{"type":"json_schema","json_schema":{"schema":{}}}',
        rb'"response_format":{"type":"text","type":"json_schema","json_schema":{"schema":{}}}',
        rb'"\u006as\u006fn_schema":"{}"',
        rb'"json_schema":"","json_schem\u0061":"{}"',
        b'"json_schema" \r\n\t : "{}"',
    ],
)
@pytest.mark.parametrize("padding", [0, 200_000])
async def test_no_spelling_of_a_field_evades_the_rules(fields: bytes, padding: int) -> None:
    """Small bodies are parsed whole, large ones are skimmed: both see the same."""
    async with house() as running:
        prompt = b'"messages":[{"role":"user","content":"%b"}]' % (b"x" * padding)
        for body in (b"{%b,%b}" % (prompt, fields), b"{%b,%b}" % (fields, prompt)):
            assert (await running.ask(CHAT, body)).header(b"x-steplane-pool") == b"grammar"


async def test_of_duplicate_keys_the_last_counts_as_it_does_for_the_engine() -> None:
    async with house() as running:
        answer = await running.ask(CHAT, b'{"messages":[],"ebnf":"root ::= \\"a\\"","ebnf":null}')
        assert answer.header(b"x-steplane-pool") == b"interactive"


async def test_a_content_type_or_a_chunked_body_changes_nothing() -> None:
    async with house() as running:
        client = await running.client()
        body = b'{"messages":[],"ebnf":"root ::= \\"a\\""}'
        head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
        answer = await client.ask(head.encode() + b"1\r\n{\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body) - 1, body[1:]))
        assert answer.header(b"x-steplane-pool") == b"quarantine"
