"""`POST /generate`: SGLang's native API, single and batched, with cumulative text in its streams."""

import time
from collections.abc import Sequence
from typing import Any, TypeVar

import orjson
from aiohttp import web

from replica.simulator.frontend import Ask, Choice, Delta, FrontEnd, Reply
from replica.simulator.http import bodies
from replica.simulator.http.bodies import GenerateBody, GenerateParams
from replica.simulator.http.errors import RequestError, json_response
from replica.simulator.http.sse import event, send_stream
from replica.simulator.http.usage import weight_versions
from replica.simulator.http.whole import whole
from replica.simulator.sequence import LogprobsWanted, Scored

T = TypeVar("T")


async def generate(request: web.Request, frontend: FrontEnd) -> web.StreamResponse:
    """Raises RequestError for anything that is answered with an error object."""
    body = await bodies.read_body(request, GenerateBody, json_only=False)
    try:
        asks, batched = await _asks(body, frontend)
        reply = frontend.open(asks)
    except ValueError as error:
        raise RequestError(str(error)) from error
    batched = batched or len(reply.choices) > 1
    try:
        if body.stream:
            return await _stream(request, reply, batched=batched)
        results = [_result(choice) for choice in await whole(reply)]
        return json_response(results if batched else results[0])
    finally:
        reply.close()


async def _asks(body: GenerateBody, frontend: FrontEnd) -> tuple[list[Ask], bool]:
    """One per prompt, and whether the reply is a list. Raises ValueError."""
    bodies.refuse_logit_processor(body.custom_logit_processor)
    prompts, batched = await _prompts(body, frontend)
    count = len(prompts)
    params = _each(body.sampling_params or GenerateParams(), count, "sampling_params")
    wanted = _each(body.return_logprob or False, count, "return_logprob")
    starts = _each(-1 if body.logprob_start_len is None else body.logprob_start_len, count, "logprob_start_len")
    tops = _each(body.top_logprobs_num or 0, count, "top_logprobs_num")
    if batched and isinstance(body.rid, str):
        rids: Sequence[str | None] = [f"{body.rid}_{i}" for i in range(count)]
    elif isinstance(body.rid, list):
        given: Sequence[str] = _each(body.rid, count, "rid")
        rids = given
    else:
        rids = [body.rid] * count
    asks = []
    for i, prompt in enumerate(prompts):
        logprobs = None
        if wanted[i]:
            top = bodies.check_top_logprobs("top_logprobs_num", tops[i])
            if starts[i] >= len(prompt):
                raise ValueError(
                    f"logprob_start_len ({starts[i]}) is higher than the number of input tokens ({len(prompt)})."
                )
            logprobs = LogprobsWanted(top, starts[i], body.return_text_in_logprobs)
        asks.append(Ask(prompt, params[i].sampling_params(), rids[i], logprobs, body.stream))
    return asks, batched


async def _prompts(body: GenerateBody, frontend: FrontEnd) -> tuple[list[list[int]], bool]:
    if (body.text is None) == (body.input_ids is None):
        raise ValueError("Either text, input_ids or input_embeds should be provided.")
    if body.text is not None:
        texts = [body.text] if isinstance(body.text, str) else body.text
        batched = not isinstance(body.text, str)
        prompts = [await frontend.encode(text) for text in texts]
    else:
        ids = body.input_ids or []
        batched = bool(ids) and isinstance(ids[0], list)
        prompts = ids if batched else [ids]  # type: ignore[assignment, list-item]
    if not prompts or not all(prompts):
        raise ValueError("The prompt is empty: text or input_ids must hold at least one token.")
    return prompts, batched


def _each(value: T | list[T], count: int, name: str) -> Sequence[T]:
    """One value per prompt. Raises ValueError for a list of another length."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"The length of {name} ({len(value)}) must be the number of prompts ({count}).")
    return value


async def _stream(request: web.Request, reply: Reply, *, batched: bool) -> web.StreamResponse:
    def of_delta(delta: Delta) -> bytes:
        result = _result(delta.choice)
        if batched:
            result["index"] = delta.choice.index
        return event(orjson.dumps(result))

    # A failed sequence ends with its text so far and an abort that says why, as in SGLang's native stream.
    return await send_stream(request, reply, of_delta, error_events=False)


def _result(choice: Choice) -> dict[str, Any]:
    finish = choice.finish
    meta: dict[str, Any] = {
        "id": choice.rid,
        "finish_reason": None if finish is None else finish.as_json(),
        "prompt_tokens": choice.prompt_tokens,
        "weight_version": "default",
        "num_retractions": 0,
    }
    wanted = choice.sequence.logprobs
    if wanted is not None:
        meta["input_token_logprobs"] = [_triple(e.chosen) for e in choice.prompt_logprobs]
        meta["output_token_logprobs"] = [_triple(e.chosen) for e in choice.logprobs]
        meta["output_token_logprobs_length"] = len(choice.logprobs)
        if wanted.top:
            meta["input_top_logprobs"] = [
                None if e.chosen.logprob is None else [_triple(t) for t in e.top] for e in choice.prompt_logprobs
            ]
            meta["output_top_logprobs"] = [[_triple(t) for t in e.top] for e in choice.logprobs]
    meta |= {"reasoning_tokens": 0, "completion_tokens": len(choice.tokens), "cached_tokens": 0}
    if finish is not None:
        meta["weight_versions"] = weight_versions(choice)
    meta |= {"cached_tokens_details": None, "dp_rank": None}
    if finish is not None:
        meta["e2e_latency"] = time.perf_counter() - choice.arrived_s
    return {"text": choice.text, "output_ids": choice.tokens, "meta_info": meta}


def _triple(item: Scored) -> list[Any]:
    return [item.logprob, item.token, item.text]
