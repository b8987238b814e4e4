"""Log probabilities: of chosen tokens and of alternatives, streaming and not, in the three dialects."""

from openai.types.chat import ChatCompletionMessageParam

from tests.clients.case import MODEL, CaseTable, Client

CASES = CaseTable()
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say a word."}]
TOKENS = 4


@CASES.case("chat log probabilities with alternatives")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=TOKENS, temperature=0, logprobs=True, top_logprobs=5
    )
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == TOKENS
    for token in logprobs.content:
        assert len(token.top_logprobs) == 5
        likeliest = max(other.logprob for other in token.top_logprobs)
        assert token.logprob <= likeliest + 1e-4


@CASES.case("chat log probabilities without alternatives")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=TOKENS, temperature=0, logprobs=True
    )
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert all(token.logprob <= 0 for token in logprobs.content)


@CASES.case("chat log probabilities as a stream")
def _(client: Client) -> None:
    with client.openai.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=TOKENS, temperature=0, logprobs=True, top_logprobs=2, stream=True
    ) as stream:
        chunks = list(stream)
    tokens = [
        token
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs is not None
        for token in choice.logprobs.content or ()
    ]
    assert len(tokens) == TOKENS


@CASES.case("completion log probabilities")
def _(client: Client) -> None:
    reply = client.openai.completions.create(
        model=MODEL, prompt="The sea is", max_tokens=TOKENS, temperature=0, logprobs=3
    )
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert len(logprobs.tokens or ()) == TOKENS
    assert all(len(alternatives) == 3 for alternatives in logprobs.top_logprobs or ())


@CASES.case("log probabilities of /generate, prompt included")
def _(client: Client) -> None:
    reply = client.http.post(
        "/generate",
        json={
            "text": "The sea is",
            "sampling_params": {"max_new_tokens": TOKENS, "temperature": 0},
            "return_logprob": True,
            "top_logprobs_num": 2,
            "logprob_start_len": 0,
        },
    )
    meta = reply.json()["meta_info"]
    assert len(meta["output_token_logprobs"]) == TOKENS
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"]
