"""`POST /v1/chat/completions`, as SGLang's `serving_chat.py` answers it."""

import time
from typing import Any

import orjson
from aiohttp import web

from replica.simulator.frontend import Ask, Choice, Delta, FrontEnd, Reply
from replica.simulator.grammar import GrammarSpec
from replica.simulator.http import bodies, tools
from replica.simulator.http.bodies import ChatBody
from replica.simulator.http.conversation import prompt_text
from replica.simulator.http.errors import RequestError
from replica.simulator.http.sse import event, send_stream
from replica.simulator.http.usage import usage, usage_object
from replica.simulator.http.whole import completion, whole
from replica.simulator.sequence import LogprobsWanted, Scored, TokenLogprobs
from replica.simulator.vocabulary import Vocabulary


async def chat_completions(request: web.Request, frontend: FrontEnd) -> web.StreamResponse:
    """Raises RequestError for anything that is answered with an error object."""
    body = await bodies.read_body(request, ChatBody)
    try:
        reply = frontend.open([await _ask(body, frontend)])
    except ValueError as error:
        raise RequestError(str(error)) from error
    try:
        if body.stream:
            events = _ChatEvents(body, reply, frontend.vocabulary)
            return await send_stream(request, reply, events.of_delta, events.end)
        return await _complete(body, reply, frontend.vocabulary)
    finally:
        reply.close()


async def _ask(body: ChatBody, frontend: FrontEnd) -> Ask:
    """Raises ValueError or RequestError."""
    if not body.messages:
        raise RequestError("Messages cannot be empty.")
    bodies.refuse_logit_processor(body.custom_logit_processor)
    context, limit = frontend.settings.context_length, body.max_new_tokens
    if limit and limit > context:
        raise RequestError(
            f"max_completion_tokens is too large: {limit}.This model supports at most {context} completion tokens."
        )
    params = bodies.openai_sampling_params(body, limit, _grammar(body))
    logprobs = None
    if body.logprobs:
        logprobs = LogprobsWanted(bodies.check_top_logprobs("top_logprobs", body.top_logprobs or 0))
    prompt = await frontend.encode(prompt_text(body))
    return Ask(prompt, params, _single_rid(body.rid), logprobs, body.stream)


def _grammar(body: ChatBody) -> GrammarSpec | None:
    sources = body.grammar_sources()
    schema = tools.tools_schema(body)
    if schema is not None:
        if sources:
            raise ValueError(
                "tool_choice 'required' or a named tool cannot be combined with response_format, regex, or ebnf: the "
                "tool-call constraint and the output constraint cannot both be honored."
            )
        sources = {"json": schema}
    return bodies.one_grammar(sources)


def _single_rid(rid: str | list[str] | None) -> str | None:
    if isinstance(rid, list):
        raise ValueError("The rid should be a string for a single request.")
    return rid


async def _complete(body: ChatBody, reply: Reply, vocabulary: Vocabulary) -> web.Response:
    choices = await whole(reply)
    objects = [_choice_object(body, choice, vocabulary) for choice in choices]
    return completion("chat.completion", body.model, choices, objects, body.n)


def _choice_object(body: ChatBody, choice: Choice, vocabulary: Vocabulary) -> dict[str, Any]:
    finish = choice.finish
    assert finish is not None
    reason, matched, text = finish.type, finish.matched, choice.text
    message: dict[str, Any] = {"role": "assistant", "content": text, "reasoning_content": None}
    if tools.forces_tools(body):
        calls = tools.parse_calls(text)
        if calls is not None:
            message = {"role": "assistant", "content": "", "reasoning_content": None, "tool_calls": calls}
            if reason == "stop":
                return _with_reason(choice, message, "tool_calls", None, vocabulary, body)
    return _with_reason(choice, message, reason, matched, vocabulary, body)


def _with_reason(
    choice: Choice,
    message: dict[str, Any],
    reason: str,
    matched: int | str | None,
    vocabulary: Vocabulary,
    body: ChatBody,
) -> dict[str, Any]:
    return {
        "index": choice.index,
        "message": message,
        "logprobs": _logprobs_object(choice.logprobs, vocabulary) if body.logprobs else None,
        "finish_reason": reason,
        "matched_stop": matched,
    }


class _ChatEvents:
    """Builds the events of one stream. The common one, a delta of content, is glued from prepared bytes."""

    def __init__(self, body: ChatBody, reply: Reply, vocabulary: Vocabulary) -> None:
        self._body = body
        self._reply = reply
        self._vocabulary = vocabulary
        self._created = int(time.time())
        self._heads: dict[int, bytes] = {}
        self._calls: dict[int, tools.CallStream] = {}
        self._finished: list[Delta] = []
        self._parses_calls = bool(body.tools) and body.tool_choice != "none"

    def of_delta(self, delta: Delta) -> bytes:
        choice = delta.choice
        out = b""
        if choice.index not in self._heads:
            self._heads[choice.index] = self._head(choice)
            out = self._chunk(choice, {"reasoning_content": None, "role": "assistant", "content": ""})
        if self._parses_calls:
            out += self._of_calls(delta)
        elif delta.text:
            out += self._of_text(delta)
        if delta.finish is not None:
            self._finished.append(delta)
        return out

    def end(self) -> bytes:
        """The events after the last token: a finish for every choice that has one, and the usage where it is wanted."""
        out = b""
        for delta in self._finished:
            finish, calls = delta.finish, self._calls.get(delta.choice.index)
            assert finish is not None
            reason: str = finish.type
            if reason == "stop" and calls is not None and calls.calls:
                reason = "tool_calls"
            out += self._chunk(delta.choice, {"reasoning_content": None}, reason=reason, matched=finish.matched)
        if self._body.include_usage:
            choices = self._reply.choices
            chunk = self._envelope(choices[0].rid)
            out += event(orjson.dumps({**chunk, "choices": [], "usage": usage(choices, self._body.n)}))
        return out

    def _of_text(self, delta: Delta) -> bytes:
        if self._body.logprobs or self._body.continuous_usage:
            logprobs = _logprobs_object(delta.logprobs, self._vocabulary) if self._body.logprobs else None
            return self._chunk(delta.choice, {"reasoning_content": None, "content": delta.text}, logprobs=logprobs)
        return self._heads[delta.choice.index] + orjson.dumps(delta.text) + _TAIL

    def _of_calls(self, delta: Delta) -> bytes:
        """Where tools are attached, SGLang parses the text for calls and sends what it finds in other shapes."""
        out = b""
        if not tools.forces_tools(self._body):
            if delta.text:
                out = self._message(delta.choice, {"role": None, "content": delta.text, "reasoning_content": None})
        else:
            stream = self._calls.setdefault(delta.choice.index, tools.CallStream())
            for piece in stream.feed(delta.text):
                identity = None if piece.name is None else tools.call_id()
                call = tools.call_object(piece.index, identity, piece.name, piece.arguments)
                message = {"role": None, "content": None, "reasoning_content": None, "tool_calls": [call]}
                out += self._message(delta.choice, message)
        if delta.logprobs and self._body.logprobs:
            logprobs = _logprobs_object(delta.logprobs, self._vocabulary)
            out += self._chunk(delta.choice, {"reasoning_content": None}, logprobs=logprobs)
        return out

    def _chunk(
        self,
        choice: Choice,
        message: dict[str, Any],
        *,
        logprobs: dict[str, Any] | None = None,
        reason: str | None = None,
        matched: int | str | None = None,
    ) -> bytes:
        entry = _stream_choice(choice.index, message, logprobs, reason, matched)
        chunk: dict[str, Any] = {**self._envelope(choice.rid), "choices": [entry]}
        if self._body.continuous_usage and message.get("content"):
            chunk["usage"] = usage_object(choice.prompt_tokens, len(choice.tokens))
        return event(orjson.dumps(chunk))

    def _message(self, choice: Choice, message: dict[str, Any]) -> bytes:
        counts = usage_object(choice.prompt_tokens, len(choice.tokens)) if self._body.continuous_usage else None
        chunk = {**self._envelope(choice.rid), "choices": [_stream_choice(choice.index, message)], "usage": counts}
        return event(orjson.dumps(chunk))

    def _envelope(self, rid: str) -> dict[str, Any]:
        return {"id": rid, "object": "chat.completion.chunk", "created": self._created, "model": self._body.model}

    def _head(self, choice: Choice) -> bytes:
        """All bytes of a content event up to its text."""
        chunk = self._chunk(choice, {"reasoning_content": None, "content": ""})
        return chunk[: -len(_TAIL) - 2]


def _stream_choice(
    index: int,
    message: dict[str, Any],
    logprobs: dict[str, Any] | None = None,
    reason: str | None = None,
    matched: int | str | None = None,
) -> dict[str, Any]:
    return {
        "index": index,
        "delta": message,
        "logprobs": logprobs,
        "finish_reason": reason,
        "matched_stop": matched,
    }


_TAIL = b'},"logprobs":null,"finish_reason":null,"matched_stop":null}]}\n\n'


def _logprobs_object(entries: list[TokenLogprobs], vocabulary: Vocabulary) -> dict[str, Any]:
    def scored(item: Scored) -> dict[str, Any]:
        return {
            "token": item.text or "",
            "bytes": list(vocabulary.token_bytes[item.token]),
            "logprob": item.logprob,
        }

    return {"content": [{**scored(e.chosen), "top_logprobs": [scored(t) for t in e.top]} for e in entries]}
