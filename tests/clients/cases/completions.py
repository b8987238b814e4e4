"""`/v1/completions`: one prompt and several, streaming and not, by the official client and by hand."""

from tests.clients.case import MODEL, CaseTable, Client

CASES = CaseTable()
TOKENS = 6


@CASES.case("a completion in one piece")
def _(client: Client) -> None:
    reply = client.openai.completions.create(model=MODEL, prompt="The sea is", max_tokens=TOKENS, temperature=0)
    assert reply.choices[0].text
    assert reply.usage is not None
    assert reply.usage.completion_tokens == TOKENS


@CASES.case("a completion as a stream")
def _(client: Client) -> None:
    with client.openai.completions.create(
        model=MODEL,
        prompt="The sea is",
        max_tokens=TOKENS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == TOKENS


@CASES.case("completions of several prompts")
def _(client: Client) -> None:
    reply = client.openai.completions.create(
        model=MODEL, prompt=["The sea is", "A boat"], max_tokens=TOKENS, temperature=0
    )
    assert [choice.index for choice in reply.choices] == [0, 1]


@CASES.case("a completion with a stop string of a whole word")
def _(client: Client) -> None:
    reply = client.openai.completions.create(
        model=MODEL, prompt="The sea is", max_tokens=TOKENS, temperature=0, stop="\n\n\n never \n\n\n"
    )
    assert reply.choices[0].finish_reason == "length"


@CASES.case("a completion posted by hand, with spaces and an unknown field")
def _(client: Client) -> None:
    reply = client.http.post(
        "/v1/completions",
        content=b' { "model" : "tiny",\r\n\t"prompt" : "caf\\u00e9", "max_tokens":2, "temperature": 0.0, "x": [1] }\n',
        headers={"content-type": "application/json; charset=utf-8"},
    )
    assert reply.json()["usage"]["completion_tokens"] == 2


@CASES.case("a completion stream posted by hand")
def _(client: Client) -> None:
    with client.http.stream(
        "POST",
        "/v1/completions",
        json={"model": MODEL, "prompt": "The sea is", "max_tokens": 4, "temperature": 0, "stream": True},
    ) as reply:
        body = b"".join(reply.iter_raw())
    assert body.endswith(b"data: [DONE]\n\n")
