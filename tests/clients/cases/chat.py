"""Plain chat: streaming and not, usage, several choices, stop strings, conversations."""

from openai.types.chat import ChatCompletionMessageParam

from tests.clients.case import MODEL, CaseTable, Client

CASES = CaseTable()
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me about the sea."}]
TOKENS = 8


@CASES.case("a chat completion in one piece")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=TOKENS, temperature=0)
    assert reply.choices[0].message.content
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == TOKENS
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + TOKENS


@CASES.case("a chat completion as a stream")
def _(client: Client) -> None:
    with client.openai.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=TOKENS, temperature=0, stream=True
    ) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    whole = client.openai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=TOKENS, temperature=0)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "length"
    assert client.exchanges[0].body.endswith(b"data: [DONE]\n\n")


@CASES.case("a chat stream that ends with its usage")
def _(client: Client) -> None:
    with client.openai.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=TOKENS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == TOKENS


@CASES.case("two choices in one piece")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=TOKENS, temperature=0, n=2)
    first, second = reply.choices
    assert (first.index, second.index) == (0, 1)
    assert first.message.content
    assert second.message.content


@CASES.case("two choices as one stream", interleaved=True)
def _(client: Client) -> None:
    with client.openai.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=TOKENS, temperature=0, n=2, stream=True
    ) as stream:
        chunks = list(stream)
    texts = {0: "", 1: ""}
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        texts[choice.index] += choice.delta.content or ""
    assert all(texts.values())


@CASES.case("a stop string cuts the answer")
def _(client: Client) -> None:
    free = client.openai.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=TOKENS, temperature=0)
    text = free.choices[0].message.content
    assert text
    stop = text[len(text) // 2 :][:3]
    cut = client.openai.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=TOKENS, temperature=0, stop=[stop, "never said"]
    )
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].message.content == text[: text.index(stop)]


@CASES.case("a conversation with a system prompt, in several scripts")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": "Antworte höflich."},
            {"role": "user", "content": "海はなぜ青いのですか \U0001f30a"},
            {"role": "assistant", "content": 'Because of "light"\n\tand water \\ depth.'},
            {"role": "user", "content": [{"type": "text", "text": "И почему солёное?"}]},
        ],
        max_tokens=TOKENS,
        temperature=0,
    )
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content


@CASES.case("penalties and a logit bias")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=TOKENS,
        temperature=0,
        frequency_penalty=0.5,
        presence_penalty=0.25,
        logit_bias={"1000": 100},
    )
    assert reply.usage is not None
    assert reply.usage.completion_tokens == TOKENS


@CASES.case("a long prompt")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "wave after wave " * 400}], max_tokens=2, temperature=0
    )
    assert reply.usage is not None
    assert reply.usage.prompt_tokens > 1_000


@CASES.case("the list of models")
def _(client: Client) -> None:
    assert MODEL in [model.id for model in client.openai.models.list()]
