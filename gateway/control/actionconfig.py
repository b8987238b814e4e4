"""The configuration of what a rule does with a request beside sending it to a pool; docs/rules.md explains each.

Each model stands for a class of gateway/routing/actions.py. Owns which headers and fields may not be touched.
"""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from gateway.control.part import Count, Limit, Name, Part, Seconds
from gateway.control.validation import custom_error
from gateway.hookcost.edits import Cap
from gateway.routing.actions import Actions, Refuse, Shadow

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff]{0,4096}")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_FRAMING = frozenset(
    ("connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding")
)
_FIXED = _FRAMING | {"host", "upgrade", "x-request-id"}
"""Headers that say where a message ends and whose it is."""
_ANSWER_FIXED = _FIXED | {"content-type", "content-encoding"}
_OURS = "x-steplane-"
_KEPT_FIELDS = frozenset(
    ("extra_body", "input", "input_ids", "instances", "messages", "model", "parameters", "prompt", "rid", "stream")
) | {"sampling_params", "text"}
"""Fields without which a request is another one, or none."""


def _header(name: object, fixed: frozenset[str]) -> str:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise custom_error("the name of a header")
    lower = name.lower()
    if lower in fixed or lower.startswith(_OURS):
        raise custom_error("a header that may be changed", f"{lower} is the gateway's own, or the connection's")
    return lower


def _headers(value: object, fixed: frozenset[str]) -> object:
    if not isinstance(value, dict):
        raise custom_error("a mapping of header names to texts")
    found: dict[str, str] = {}
    for name, text in value.items():
        if not isinstance(text, str) or not _VALUE.fullmatch(text) or text != text.strip():
            raise custom_error(f"text on one line for the header {name}", "put numbers in quotes")
        found[_header(name, fixed)] = text
    return found


def _names(value: object) -> object:
    if not isinstance(value, list):
        raise custom_error("a list of header names")
    return [_header(name, _FIXED) for name in value]


def _field(value: object) -> object:
    if not isinstance(value, str) or not _FIELD.fullmatch(value):
        raise custom_error("the name of a field of the body")
    if value in _KEPT_FIELDS:
        raise custom_error("a field that a request can do without", f"without {value} it would be another request")
    return value


def _most(value: object) -> object:
    return {"most": value} if isinstance(value, int) and not isinstance(value, bool) else value


RequestHeaders = Annotated[dict[str, str], BeforeValidator(lambda value: _headers(value, _FIXED))]
ResponseHeaders = Annotated[dict[str, str], BeforeValidator(lambda value: _headers(value, _ANSWER_FIXED))]
HeaderNames = Annotated[list[str], BeforeValidator(_names)]
Parameter = Annotated[str, BeforeValidator(_field)]


class TokenCapConfig(Part):
    """The most output tokens: a number, or `{most: N, default: M}` with what a client gets that says nothing."""

    most: Count
    default: Count | None = None

    @model_validator(mode="after")
    def _in_order(self) -> "TokenCapConfig":
        if self.default is not None and self.default > self.most:
            raise custom_error("a default of at most `most`")
        return self


class CapConfig(Part):
    """The most that parameters of the body may ask for, in whichever of its spellings; more is cut down to it.

    max_tokens:      output tokens. top_logprobs: alternatives for each of them.
    prompt_logprobs: alternatives for each token of the prompt.
    n:               answers to one prompt, `best_of` too.
    """

    max_tokens: Annotated[TokenCapConfig | None, BeforeValidator(_most)] = None
    top_logprobs: Limit | None = None
    prompt_logprobs: Limit | None = None
    n: Count | None = None

    def caps(self) -> tuple[Cap, ...]:
        """As the data plane takes them."""
        caps: list[Cap] = []
        if self.max_tokens is not None:
            caps.append(Cap("max_tokens", self.max_tokens.most, self.max_tokens.default))
        for name, most in (("top_logprobs", self.top_logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if most is not None:
                caps.append(Cap(name, most))
        if self.n is not None:
            caps.append(Cap("n", self.n))
        return tuple(caps)


class RefuseConfig(Part):
    """The answer instead of a pool: `status` with an error that says `message`, and `Retry-After` where not 0."""

    status: Annotated[int, Field(ge=400, le=599)] = 403
    message: Annotated[str, Field(min_length=1, max_length=1000)] = "requests of this kind are not served here"
    retry_after_s: Annotated[int, Field(ge=0, le=86_400)] = 0

    def refuse(self) -> Refuse:
        """As routing takes it."""
        return Refuse(self.status, self.message, self.retry_after_s)


class ShadowConfig(Part):
    """A copy of requests goes to `pool`, and its answer is thrown away.

    share:       of the requests, above 0 to 1.
    max_running: copies at one time, no further ones are made meanwhile. timeout_s: a copy is aborted then.
    """

    pool: Name
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_running: Count = 16
    timeout_s: Seconds = 60

    def shadow(self) -> Shadow:
        """As the data plane takes it."""
        return Shadow(self.pool, self.share, self.max_running, self.timeout_s)


class ActionsConfig(Part):
    """What a rule changes.

    set_headers:      what the replica gets for these names, whatever the client sent. strip_headers: what it doesn't.
    response_headers: what is added to the answer.
    cap:              limits of parameters in the body. strip: fields that are taken out, however they are spelled.
    shadow:           a copy to another pool.
    """

    set_headers: RequestHeaders = Field(default_factory=dict)
    strip_headers: HeaderNames = Field(default_factory=list)
    response_headers: ResponseHeaders = Field(default_factory=dict)
    cap: CapConfig = CapConfig()
    strip: list[Parameter] = Field(default_factory=list)
    shadow: ShadowConfig | None = None

    def actions(self) -> Actions | None:
        """As the data plane takes them; None where there are none."""
        shadow = self.shadow.shadow() if self.shadow is not None else None
        parts: tuple[Any, ...] = (
            tuple(self.set_headers.items()),
            tuple(self.strip_headers),
            tuple(self.response_headers.items()),
            self.cap.caps(),
            tuple(self.strip),
            shadow,
        )
        return Actions(*parts) if any(parts) else None
