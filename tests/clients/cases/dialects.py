"""The other two dialects that engines speak: OpenAI's `/v1/responses` and Anthropic's `/v1/messages`."""

import json
from typing import Any

from tests.clients.case import MODEL, CaseTable, Client

CASES = CaseTable()
TOKENS = 6


@CASES.case("a response in one piece")
def _(client: Client) -> None:
    reply = client.openai.responses.create(
        model=MODEL, input="Tell me about the sea.", max_output_tokens=TOKENS, temperature=0
    )
    assert reply.output_text
    assert reply.status == "incomplete"


@CASES.case("a response as a stream")
def _(client: Client) -> None:
    with client.openai.responses.create(
        model=MODEL, input="Tell me about the sea.", max_output_tokens=TOKENS, temperature=0, stream=True
    ) as stream:
        events = list(stream)
    assert events[0].type == "response.created"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta")


@CASES.case("a response without input is a 400")
def _(client: Client) -> None:
    reply = client.http.post("/v1/responses", json={"model": MODEL})
    assert reply.status_code == 400
    assert "input" in reply.json()["error"]["message"]


def message(**fields: Any) -> dict[str, Any]:
    """A body for `/v1/messages`."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Tell me about the sea."}],
        "max_tokens": TOKENS,
        "temperature": 0,
        **fields,
    }


@CASES.case("a message in one piece")
def _(client: Client) -> None:
    reply = client.http.post("/v1/messages", json=message(system="Be brief."))
    assert reply.json()["stop_reason"] == "max_tokens"


@CASES.case("a message as a stream")
def _(client: Client) -> None:
    with client.http.stream("POST", "/v1/messages", json=message(stream=True)) as reply:
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: ")]
    assert json.loads(lines[0])["type"] == "message_start"
    assert json.loads(lines[-1])["type"] == "message_stop"


@CASES.case("a message without max_tokens is a 400")
def _(client: Client) -> None:
    reply = client.http.post("/v1/messages", json={"model": MODEL, "messages": []})
    assert reply.status_code == 400
    assert reply.json()["type"] == "error"
