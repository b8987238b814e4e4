"""A parsed body read as one dialect: its features, and the grammars it asks for.

Owns where each dialect keeps its prompt, tools, output format and sampling parameters. Prices nothing.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from gateway.hookcost.constraint import Constraint, canonical, format_constraint, tools_constraint
from gateway.hookcost.features import Api, Features, Grammar
from gateway.hookcost.prompt import content_bytes, messages_bytes, prompts_of, texts_bytes
from gateway.hookcost.sampling import Sampling, read_sampling
from gateway.hookcost.values import MalformedError, boolean, items, mapping, text, texts

MAX_GRAMMARS = 500
"""Of one request, one for each of its prompts, say."""
_TURN_ENTRIES = 100
_LONG = 1_000
"""What holds more entries has taken long to parse, and takes long to look at."""
LOGPROBS_INCLUDE = "message.output_text.logprobs"
_STRONGEST = (
    Grammar.ebnf,
    Grammar.regex,
    Grammar.structural_tag,
    Grammar.tools,
    Grammar.json_schema,
    Grammar.choice,
    Grammar.json_object,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one body asks for.

    texts: the `constraint.canonical` form of each constraint.
    """

    features: Features
    constraints: tuple[Constraint, ...]
    texts: tuple[bytes, ...]
    stop_regex: tuple[str, ...] = ()
    largest_token_id: int = -1


def read_body(api: Api, body: Mapping[str, object], body_bytes: int) -> Generator[None, None, Reading]:
    """Reads a parsed body of a recognised dialect; yields at least once a millisecond or so.

    Raises:
        MalformedError: a recognised field holds a value that no engine accepts.
    """
    clashing = _clashing(body)
    body = _merged(body)
    if api is Api.generate and "instances" in body:
        body = _vertex(body)
    if any(len(value) > _LONG for value in body.values() if isinstance(value, list | dict)):
        yield
    sampling = Sampling()
    yield from read_sampling(clashing, sampling, "extra_body.")
    yield from read_sampling(body, sampling)
    if len(body) > _LONG:
        yield
    if "sampling_params" in body:
        yield from _read_nested_sampling(body["sampling_params"], sampling)
    tools = items(body.get("tools"), "tools")
    batch, prompt_bytes = 1, 0
    if api in (Api.chat, Api.messages):
        batch, prompt_bytes, tools = _read_conversation(body, tools)
    elif api is Api.completions:
        batch, prompt_bytes = prompts_of(body.get("prompt"))
    elif api is Api.responses:
        prompt_bytes = _read_responses(body, sampling)
    elif api is Api.generate:
        batch, prompt_bytes = prompts_of(_first(body, "text", "input_ids", "token_ids", "input_embeds"))
    if tools:
        strict = boolean(body.get("strict_tools"), "strict_tools")  # Cohere's
        _add(sampling, (yield from tools_constraint(tools, body.get("tool_choice"), strict, "tools")))
    if api is Api.messages:
        output = mapping(body.get("output_config"), "output_config")
        if output is not None:
            _add(sampling, format_constraint(output.get("format"), "output_config.format"))
    _settle_prompt_logprobs(api, sampling)
    by_text = yield from _by_text(sampling.constraints)
    constraints, spelled = tuple(by_text.values()), tuple(by_text)
    return Reading(
        Features(
            api=api,
            model=text(body.get("model"), "model"),
            stream=boolean(body.get("stream"), "stream"),
            grammar=_kind_of(constraints),
            grammar_bytes=sum(
                [max(0, len(text) - len(each.kind) - 1) for each, text in zip(constraints, spelled, strict=True)]
            ),
            tools=len(tools),
            logprobs=sampling.logprobs,
            top_logprobs=sampling.top_logprobs if sampling.logprobs else 0,
            prompt_logprobs=sampling.prompt_logprobs,
            prompt_logprobs_start=sampling.prompt_logprobs_start,
            top_k=sampling.top_k,
            stop=len(sampling.stop),
            stop_bytes=texts_bytes(sampling.stop),
            stop_tokens=sampling.stop_tokens,
            stop_regex=len(sampling.stop_regex),
            logit_bias=sampling.logit_bias,
            penalties=sampling.penalties,
            custom_logit_processor=sampling.custom_logit_processor,
            return_hidden_states=sampling.return_hidden_states,
            n=sampling.n * batch,
            batch=batch,
            max_tokens=sampling.max_tokens,
            prompt_bytes=prompt_bytes,
            body_bytes=body_bytes,
            rid_given=any(texts(body.get("rid"), "rid")),
        ),
        constraints,
        spelled,
        tuple(sampling.stop_regex),
        sampling.largest_token_id,
    )


def _add(sampling: Sampling, constraint: Constraint | None) -> None:
    if constraint is not None:
        sampling.constraints.append(constraint)


def _first(body: Mapping[str, object], *names: str) -> object:
    return next((body[name] for name in names if body.get(name) is not None), None)


def _merged(body: Mapping[str, object]) -> Mapping[str, object]:
    """The body with a literal `extra_body` folded in, as gateways and SDKs between client and engine do."""
    extra = body.get("extra_body")
    if not isinstance(extra, dict) or not extra:
        return body
    return {**extra, **{name: value for name, value in body.items() if value is not None or name not in extra}}


def _clashing(body: Mapping[str, object]) -> Mapping[str, object]:
    """What `extra_body` says otherwise than the body: some let the one win, some the other, so both are read."""
    extra = body.get("extra_body")
    if not isinstance(extra, dict):
        return {}
    return {
        name: extra[name]
        for name, value in body.items()
        if value is not None and name in extra and extra[name] != value
    }


def _vertex(body: Mapping[str, object]) -> Mapping[str, object]:
    """SGLang's /vertex_generate: prompts in `instances`, everything else in `parameters`."""
    merged = dict(mapping(body.get("parameters"), "parameters") or {})
    instances = items(body["instances"], "instances")
    for key in ("text", "input_ids", "input_embeds"):
        values = [instance.get(key) for instance in instances if isinstance(instance, dict)]
        if values and values[0]:
            merged[key] = values
            break
    return merged


def _by_text(constraints: list[Constraint]) -> Generator[None, None, dict[bytes, Constraint]]:
    """Different grammars by their text: the prompts of a batch mostly have the same one."""
    found: dict[bytes, Constraint] = {}
    for index, constraint in enumerate(constraints):
        found.setdefault(canonical(constraint), constraint)
        if len(found) > MAX_GRAMMARS:
            raise MalformedError(constraint.param, f"one of at most {MAX_GRAMMARS} different grammars", list(found))
        if index % _TURN_ENTRIES == _TURN_ENTRIES - 1:
            yield
    return found


def _read_nested_sampling(params: object, sampling: Sampling) -> Generator[None, None, None]:
    """SGLang's `sampling_params`: one object, or a list of one per prompt; the list costs as its dearest entries do."""
    if params is None:
        return
    if isinstance(params, dict):
        yield from read_sampling(params, sampling, "sampling_params.")
    elif isinstance(params, list):
        for index, entry in enumerate(params):
            entry_params = mapping(entry, f"sampling_params[{index}]")
            if entry_params is not None:
                yield from read_sampling(entry_params, sampling, f"sampling_params[{index}].")
            if index % _TURN_ENTRIES == _TURN_ENTRIES - 1:
                yield
    else:
        raise MalformedError("sampling_params", "an object or an array of objects", params)


def _read_conversation(body: Mapping[str, object], tools: list[object]) -> tuple[int, int, list[object]]:
    """Conversations in the body, prompt bytes, and the tools with those that single messages bring (SGLang)."""
    messages = body.get("messages")
    batch = 1
    tools = [*tools]
    if isinstance(messages, list):
        if messages and isinstance(messages[0], list):
            batch = len(messages)
        for index, message in enumerate(messages):
            if isinstance(message, dict) and message.get("tools") is not None:
                tools += items(message["tools"], f"messages[{index}].tools")
    prompt_bytes = messages_bytes(messages)
    if "system" in body:
        prompt_bytes += content_bytes(body["system"])
    return batch, prompt_bytes, tools


def _read_responses(body: Mapping[str, object], sampling: Sampling) -> int:
    """Takes in what /v1/responses keeps elsewhere than the other dialects; returns prompt bytes."""
    form = mapping(body.get("text"), "text")
    if form is not None:
        _add(sampling, format_constraint(form.get("format"), "text.format"))
    if LOGPROBS_INCLUDE in texts(body.get("include"), "include"):
        sampling.logprobs = True
    return messages_bytes(body.get("input")) + content_bytes(body.get("instructions"))


def _settle_prompt_logprobs(api: Api, sampling: Sampling) -> None:
    """`echo` makes the prompt's logprobs part of the answer; SGLang's have as many alternatives as the output's. Beam
    search (vLLM's) looks at twice as many alternatives as it has beams."""
    if sampling.beam_search:
        sampling.logprobs = True
        sampling.top_logprobs = max(sampling.top_logprobs, 2 * sampling.n)
    echoed = sampling.echo and (sampling.logprobs or api is Api.chat)
    if echoed or (sampling.prompt_logprobs >= 0 and sampling.logprobs):
        sampling.prompt_logprobs = max(sampling.prompt_logprobs, sampling.top_logprobs)


def _kind_of(constraints: tuple[Constraint, ...]) -> Grammar:
    """The kind that rules speak of; of several (no engine takes more than one) the one that costs most."""
    if len(constraints) < 2:
        return constraints[0].kind if constraints else Grammar.none
    kinds = {constraint.kind for constraint in constraints}
    return next(kind for kind in _STRONGEST if kind in kinds)
