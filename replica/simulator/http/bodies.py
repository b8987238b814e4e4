"""Request bodies as SGLang's pydantic models accept them; fields that the simulator has no use for are ignored.

Owns validation and the translation to `SamplingParams`. The field names, types and defaults are those of
`entrypoints/openai/protocol.py` and `managers/io_struct.py`.
"""

import json
from typing import Any, Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel, Field, StrictBool, ValidationError, field_validator, model_validator

from replica.simulator.grammar import GrammarSpec
from replica.simulator.http.errors import RequestError
from replica.simulator.logits import MAX_TOP
from replica.simulator.sampling_params import SamplingParams

Body = TypeVar("Body", bound=BaseModel)


class JsonSchema(BaseModel):
    name: str
    description: str | None = None
    schema_: dict[str, Any] | None = Field(alias="schema", default=None)
    strict: StrictBool | None = None


class JsonFormat(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class TagStructure(BaseModel):
    begin: str
    schema_: dict[str, Any] | None = Field(alias="schema", default=None)
    end: str


class TagFormat(BaseModel):
    type: Literal["structural_tag"]
    structures: list[TagStructure]
    triggers: list[str]


ResponseFormat = JsonFormat | TagFormat


class StreamOptions(BaseModel):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class ContentPart(BaseModel):
    type: str
    text: str | None = None


class CalledFunction(BaseModel):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class Call(BaseModel):
    id: str | None = None
    function: CalledFunction


class Message(BaseModel):
    role: str
    content: str | list[ContentPart] | None = None
    tool_call_id: str | None = None
    tool_calls: list[Call] | None = None

    @field_validator("role", mode="before")
    @classmethod
    def _known_role(cls, value: object) -> object:
        roles = ("system", "assistant", "tool", "function", "developer", "user")
        if not isinstance(value, str) or value.lower() not in roles:
            raise ValueError(f"'role' must be one of {', '.join(map(repr, roles))} (case-insensitive).")
        return value.lower()


class Function(BaseModel):
    name: str
    description: str | None = None
    parameters: Any = None
    strict: bool | None = None


class Tool(BaseModel):
    type: str = "function"
    function: Function


class NamedFunction(BaseModel):
    name: str | None = None


class ToolChoice(BaseModel):
    function: NamedFunction
    type: Literal["function"] = "function"


class _Sampling(BaseModel):
    """What chat and text completions have in common."""

    model: str = "default"
    frequency_penalty: float = 0.0
    logit_bias: dict[str, float] | None = None
    n: int = 1
    presence_penalty: float = 0.0
    response_format: ResponseFormat | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    regex: str | None = None
    ebnf: str | None = None
    min_tokens: int = 0
    stop_token_ids: list[int] | None = None
    stop_regex: str | list[str] | None = None
    no_stop_trim: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    custom_logit_processor: Any = None
    rid: str | list[str] | None = None

    def grammar_sources(self) -> dict[str, str]:
        """The grammars that the body names, by SGLang's parameter."""
        sources = {"regex": self.regex, "ebnf": self.ebnf}
        match self.response_format:
            case JsonFormat(type="json_schema", json_schema=schema):
                if schema is None or schema.schema_ is None:
                    raise RequestError("schema_ is required for json_schema response format request.")
                sources["json"] = json.dumps(schema.schema_)
            case JsonFormat(type="json_object"):
                sources["json"] = '{"type": "object"}'
            case TagFormat() as tag:
                sources["structural_tag"] = json.dumps(tag.model_dump(by_alias=True))
            case _:
                pass
        return {kind: source for kind, source in sources.items() if source}

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)


class ChatBody(_Sampling):
    """`POST /v1/chat/completions`."""

    messages: list[Message]
    logprobs: bool = False
    top_logprobs: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | Literal["auto", "required", "none"] = "auto"
    parallel_tool_calls: bool = True

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        if values.get("tool_choice") is None:
            values = {**values, "tool_choice": "none" if values.get("tools") is None else "auto"}
        response_format = values.get("response_format")
        if isinstance(response_format, dict) and response_format.get("type") == "json_schema":
            values = {**values, "response_format": _with_named_schema(response_format)}
        return values

    @property
    def max_new_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class CompletionBody(_Sampling):
    """`POST /v1/completions`."""

    prompt: list[int] | list[list[int]] | str | list[str]
    echo: bool = False
    logprobs: int | None = None
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    json_schema: str | None = None

    @field_validator("max_tokens")
    @classmethod
    def _positive(cls, value: int) -> int:
        if value <= 0:
            raise ValueError("max_tokens must be positive")
        return value

    def grammar_sources(self) -> dict[str, str]:
        sources = super().grammar_sources()
        return {**({"json": self.json_schema} if self.json_schema else {}), **sources}


class GenerateParams(BaseModel):
    """`sampling_params` of `POST /generate`; null means the default."""

    max_new_tokens: int | None = 128
    min_new_tokens: int = 0
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stop_regex: str | list[str] | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    n: int = 1
    json_schema: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    no_stop_trim: bool = False
    logit_bias: dict[str, float] | None = None
    sampling_seed: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {k: v for k, v in values.items() if v is not None or k == "max_new_tokens"}

    def sampling_params(self) -> SamplingParams:
        sources = {
            "json": self.json_schema,
            "regex": self.regex,
            "ebnf": self.ebnf,
            "structural_tag": self.structural_tag,
        }
        return SamplingParams(
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=self.min_new_tokens,
            n=self.n,
            seed=self.sampling_seed,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            repetition_penalty=self.repetition_penalty,
            stop=_strings(self.stop),
            stop_regex=_strings(self.stop_regex),
            stop_token_ids=frozenset(self.stop_token_ids or ()),
            no_stop_trim=self.no_stop_trim,
            ignore_eos=self.ignore_eos,
            skip_special_tokens=self.skip_special_tokens,
            logit_bias=_logit_bias(self.logit_bias),
            grammar=one_grammar({kind: source for kind, source in sources.items() if source}),
        )


class GenerateBody(BaseModel):
    """`POST /generate`: one prompt or a batch of them."""

    text: str | list[str] | None = None
    input_ids: list[int] | list[list[int]] | None = None
    sampling_params: GenerateParams | list[GenerateParams] | None = None
    return_logprob: bool | list[bool] | None = None
    logprob_start_len: int | list[int] | None = None
    top_logprobs_num: int | list[int] | None = None
    return_text_in_logprobs: bool = False
    stream: bool = False
    rid: str | list[str] | None = None
    custom_logit_processor: Any = None


class AbortBody(BaseModel):
    """`POST /abort_request`."""

    rid: str | None = None
    abort_all: bool = False


class SlowDownBody(BaseModel):
    """`POST /slow_down`: seconds added to every forward pass; null ends it."""

    forward_sleep_time: float | None

    @field_validator("forward_sleep_time")
    @classmethod
    def _not_negative(cls, value: float | None) -> float | None:
        if value is not None and not 0 <= value < 3600:
            raise ValueError("forward_sleep_time must be between 0 and 3600 seconds, or null")
        return value


async def read_body(request: web.Request, model: type[Body], *, json_only: bool = True) -> Body:
    """Parse and validate.

    Raises:
        RequestError: 400 with the reason.
    """
    if json_only and request.content_type != "application/json":
        raise RequestError("Unsupported Media Type: Only 'application/json' is allowed", error_type="Bad Request")
    raw = await request.read()
    try:
        return model.model_validate(json.loads(raw or b"null"))
    except ValidationError as error:
        raise RequestError.of_validation(error) from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The body is no valid JSON: {error}", error_type="Bad Request") from error


def openai_sampling_params(
    body: ChatBody | CompletionBody, max_new_tokens: int | None, grammar: GrammarSpec | None
) -> SamplingParams:
    """SGLang's `to_sampling_params`. Raises ValueError."""

    def given(value: float | None, default: float) -> float:
        return default if value is None else value

    return SamplingParams(
        max_new_tokens=max_new_tokens,
        min_new_tokens=body.min_tokens,
        n=body.n,
        seed=body.seed,
        temperature=given(body.temperature, 1.0),
        top_p=given(body.top_p, 1.0),
        top_k=-1 if body.top_k is None else body.top_k,
        min_p=given(body.min_p, 0.0),
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        repetition_penalty=given(body.repetition_penalty, 1.0),
        stop=_strings(body.stop),
        stop_regex=_strings(body.stop_regex),
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        no_stop_trim=body.no_stop_trim,
        ignore_eos=body.ignore_eos,
        skip_special_tokens=body.skip_special_tokens,
        logit_bias=_logit_bias(body.logit_bias),
        grammar=grammar,
    )


def one_grammar(sources: dict[str, str]) -> GrammarSpec | None:
    """Raises ValueError where more than one grammar is named."""
    if len(sources) > 1:
        raise ValueError("Only one of json_schema, regex, ebnf, or structural_tag can be set.")
    for kind, source in sources.items():
        return GrammarSpec(kind, source)  # type: ignore[arg-type]
    return None


def check_top_logprobs(name: str, value: int) -> int:
    """Raises ValueError. SGLang knows no bound and dies of a large value; ours is what the sampler keeps in order."""
    if not 0 <= value <= MAX_TOP:
        raise ValueError(f"{name} must be between 0 and {MAX_TOP}, got {value}.")
    return value


def refuse_logit_processor(processor: object) -> None:
    """Raises ValueError in SGLang's words, where a request brings code."""
    if processor:
        raise ValueError(
            "The server is not configured to enable custom logit processor. "
            "Please set `--enable-custom-logit-processor` to enable this feature."
        )


def _strings(value: str | list[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _logit_bias(value: dict[str, float] | None) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in (value or {}).items()}
    except ValueError as error:
        raise ValueError(f"logit_bias must be keyed by token ids: {error}") from error


def _with_named_schema(response_format: dict[str, Any]) -> dict[str, Any]:
    """SGLang accepts `schema` beside `type`, too, and makes a named schema of it."""
    schema = response_format.get("schema")
    if response_format.get("json_schema") or not isinstance(schema, dict) or not schema:
        return response_format
    return {"type": "json_schema", "json_schema": {"name": schema.get("title", "Schema"), "schema": schema}}
