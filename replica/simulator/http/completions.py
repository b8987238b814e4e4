"""`POST /v1/completions`, as SGLang's `serving_completions.py` answers it."""

import time
from typing import Any

import orjson
from aiohttp import web

from replica.simulator.frontend import Ask, Choice, Delta, FrontEnd, Reply
from replica.simulator.http import bodies
from replica.simulator.http.bodies import CompletionBody
from replica.simulator.http.errors import RequestError
from replica.simulator.http.sse import event, send_stream
from replica.simulator.http.usage import usage, usage_object
from replica.simulator.http.whole import completion, whole
from replica.simulator.sequence import LogprobsWanted, Scored, TokenLogprobs


async def completions(request: web.Request, frontend: FrontEnd) -> web.StreamResponse:
    """Raises RequestError for anything that is answered with an error object."""
    body = await bodies.read_body(request, CompletionBody)
    try:
        asks = await _asks(body, frontend)
        reply = frontend.open(asks)
    except ValueError as error:
        raise RequestError(str(error)) from error
    prompts = [frontend.vocabulary.decode(ask.prompt, skip_special=True) if body.echo else "" for ask in asks]
    try:
        if body.stream:
            return await _stream(request, body, reply, prompts)
        return await _complete(body, reply, prompts)
    finally:
        reply.close()


async def _asks(body: CompletionBody, frontend: FrontEnd) -> list[Ask]:
    """One per prompt. Raises ValueError."""
    prompt = body.prompt
    if not prompt or (isinstance(prompt, list) and not all(prompt) and not any(prompt)):
        raise ValueError("Prompt cannot be empty")
    bodies.refuse_logit_processor(body.custom_logit_processor)
    params = bodies.openai_sampling_params(body, body.max_tokens, bodies.one_grammar(body.grammar_sources()))
    logprobs = None
    if body.logprobs is not None:
        logprobs = LogprobsWanted(bodies.check_top_logprobs("logprobs", body.logprobs))
    prompts = [await _tokens(p, frontend) for p in _prompts(prompt)]
    rids = body.rid if isinstance(body.rid, list) else [body.rid] * len(prompts)
    if len(rids) != len(prompts):
        raise ValueError(f"The rid should be a list of {len(prompts)} strings, one for each prompt.")
    if isinstance(body.rid, str) and len(prompts) > 1:
        rids = [f"{body.rid}_{i}" for i in range(len(prompts))]
    return [Ask(p, params, rid, logprobs, body.stream) for p, rid in zip(prompts, rids, strict=True)]


def _prompts(prompt: list[int] | list[list[int]] | str | list[str]) -> list[str] | list[list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt[0], int):
        return [prompt]
    return prompt


async def _tokens(prompt: str | list[int], frontend: FrontEnd) -> list[int]:
    return await frontend.encode(prompt) if isinstance(prompt, str) else prompt


async def _complete(body: CompletionBody, reply: Reply, prompts: list[str]) -> web.Response:
    choices = await whole(reply)
    objects = [_choice_object(body, choice, prompts[choice.index // body.n]) for choice in choices]
    return completion("text_completion", body.model, choices, objects, body.n)


def _choice_object(body: CompletionBody, choice: Choice, echo: str) -> dict[str, Any]:
    finish = choice.finish
    assert finish is not None
    return {
        "index": choice.index,
        "text": echo + choice.text,
        "logprobs": None if body.logprobs is None else _logprobs_object(choice.logprobs, body.logprobs),
        "finish_reason": finish.type,
        "matched_stop": finish.matched,
    }


async def _stream(request: web.Request, body: CompletionBody, reply: Reply, prompts: list[str]) -> web.StreamResponse:
    created = int(time.time())
    started: set[int] = set()

    def of_delta(delta: Delta) -> bytes:
        index = delta.choice.index
        echo = "" if index in started else prompts[index // body.n]
        started.add(index)
        return event(orjson.dumps(_chunk(body, delta, echo, created)))

    def end() -> bytes:
        if not body.include_usage:
            return b""
        counts = {k: v for k, v in usage(reply.choices, body.n).items() if v is not None}
        return event(orjson.dumps({**_envelope(body, reply.choices[0].rid, created), "choices": [], "usage": counts}))

    return await send_stream(request, reply, of_delta, end)


def _chunk(body: CompletionBody, delta: Delta, echo: str, created: int) -> dict[str, Any]:
    finish, choice = delta.finish, delta.choice
    entry = {
        "index": choice.index,
        "text": echo + delta.text,
        "logprobs": None if body.logprobs is None else _logprobs_object(delta.logprobs, body.logprobs),
        "finish_reason": None if finish is None else finish.type,
        "matched_stop": None if finish is None else finish.matched,
    }
    counts = usage_object(choice.prompt_tokens, len(choice.tokens)) if body.continuous_usage else None
    return {**_envelope(body, choice.rid, created), "choices": [entry], "usage": counts}


def _envelope(body: CompletionBody, rid: str, created: int) -> dict[str, Any]:
    return {"id": rid, "object": "text_completion", "created": created, "model": body.model}


def _logprobs_object(entries: list[TokenLogprobs], top: int) -> dict[str, Any]:
    def by_text(items: list[Scored]) -> dict[str, float | None]:
        return {item.text or "": item.logprob for item in items}

    return {
        "text_offset": [-1] * len(entries),
        "token_logprobs": [e.chosen.logprob for e in entries],
        "tokens": [e.chosen.text or "" for e in entries],
        "top_logprobs": [by_text(e.top) for e in entries] if top else [],
    }
