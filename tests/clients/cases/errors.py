"""What a client gets for a mistake: the engine's own words, whoever carries them."""

import openai
import pytest

from tests.clients.case import MODEL, CaseTable, Client
from tests.clients.cases.chat import HELLO

CASES = CaseTable()


@CASES.case("a negative max_tokens is a 400")
def _(client: Client) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.openai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=-1, temperature=0)
    assert "max_new_tokens" in caught.value.message


@CASES.case("messages that are missing are a 400")
def _(client: Client) -> None:
    reply = client.http.post("/v1/chat/completions", json={"model": MODEL, "max_tokens": 2})
    assert reply.status_code == 400
    assert "messages" in reply.json()["message"]


@CASES.case("a prompt beyond the context is a 400")
def _(client: Client) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.openai.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "wave " * 5_000}], max_tokens=2, temperature=0
        )
    assert "context length" in caught.value.message


@CASES.case("an EBNF grammar that does not compile is a 400")
def _(client: Client) -> None:
    with pytest.raises(openai.BadRequestError):
        client.openai.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=2, extra_body={"ebnf": "root ::= nowhere"}
        )


@CASES.case("an EBNF grammar that does not compile ends its stream with an error")
def _(client: Client) -> None:
    with (
        pytest.raises(openai.APIError),
        client.openai.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=2, stream=True, extra_body={"ebnf": "root ::= nowhere"}
        ) as stream,
    ):
        list(stream)


@CASES.case("a bad /generate is a 400")
def _(client: Client) -> None:
    reply = client.http.post("/generate", json={"sampling_params": {"max_new_tokens": 2}})
    assert reply.status_code == 400
    assert "text" in reply.json()["error"]["message"]


@CASES.case("an unknown path is a 404")
def _(client: Client) -> None:
    assert client.http.post("/v1/nowhere", json={}).status_code == 404


@CASES.case("a wrong method is a 405")
def _(client: Client) -> None:
    assert client.http.get("/v1/chat/completions").status_code == 405
