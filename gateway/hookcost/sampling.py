"""The parameters that shape generation, in every spelling that SGLang and vLLM accept, read from one JSON object.

The object is the body itself, or `sampling_params` inside it. Owns the names; which dialect may hold which is not
asked, because a field that one engine version ignores another obeys. Sources: SGLang 0.5.23
`entrypoints/openai/protocol.py`, `managers/io_struct.py`, `sampling/sampling_params.py`; vLLM 0.32.0
`entrypoints/openai/*/protocol.py`, `sampling_params.py`.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

from gateway.hookcost.constraint import DOORS, Constraint, structured_outputs_constraints
from gateway.hookcost.values import (
    MAX_NUMBER_CHARS,
    boolean,
    booleans,
    few,
    integer,
    integers,
    items,
    kinds_of,
    mapping,
    number,
    texts,
)

ALL_TOP_K = 1 << 30
"""SGLang's own spelling of "no top-k", as vLLM's 0 and everybody's -1 are."""


@dataclass(slots=True)
class Sampling:
    """What was read so far; merged into `Features` when the whole body has been seen."""

    constraints: list[Constraint] = field(default_factory=list)
    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: int = -1
    prompt_logprobs_start: int = 0
    top_k: int = -1
    stop: list[str] = field(default_factory=list)
    stop_tokens: int = 0
    stop_regex: list[str] = field(default_factory=list)
    logit_bias: int = 0
    largest_token_id: int = -1
    """Of all token ids named by the client, for the check against the vocabulary."""
    penalties: bool = False
    custom_logit_processor: bool = False
    return_hidden_states: bool = False
    n: int = 1
    max_tokens: int | None = None
    echo: bool = False
    beam_search: bool = False


Read = Callable[[Sampling, object, str], None]


def _top_k(to: Sampling, value: object, param: str) -> None:
    k = integer(value, param)
    if k is not None:
        to.top_k = -1 if k <= 0 or k >= ALL_TOP_K else k


def _sequences(to: Sampling, value: object, param: str) -> None:
    count = integer(value, param)
    if count is not None:
        to.n = max(to.n, count)


def _max_tokens(to: Sampling, value: object, param: str) -> None:
    limit = integer(value, param)
    if limit is not None:
        to.max_tokens = limit if to.max_tokens is None else max(to.max_tokens, limit)


def _stop(to: Sampling, value: object, param: str) -> None:
    to.stop += [stop for stop in texts(value, param) if stop]


def _stop_regex(to: Sampling, value: object, param: str) -> None:
    to.stop_regex += [pattern for pattern in texts(value, param) if pattern]


def _token_ids(to: Sampling, value: object, param: str) -> int:
    """The length of a list of token ids (SGLang: or of the longest of such lists, one a prompt); notes the largest."""
    given = items(value, param)
    if list not in kinds_of(given, param):
        return _noted(to, integers(given, param))
    rows = [row for row in given if isinstance(row, list)]
    ids = list(chain.from_iterable(rows))
    if kinds_of(ids, param) <= {int} and kinds_of(given, param) <= {list, type(None)}:
        _noted(to, cast(list[int], ids))
        return max(map(len, rows))
    few(given, param)
    few(ids, param)
    return max([_noted(to, integers(row, f"{param}[{index}]")) for index, row in enumerate(given)])


def _noted(to: Sampling, ids: list[int]) -> int:
    to.largest_token_id = max(to.largest_token_id, max(ids, default=-1))
    return len(ids)


def _stop_tokens(to: Sampling, value: object, param: str) -> None:
    to.stop_tokens += _token_ids(to, value, param)


def _logprob_tokens(to: Sampling, value: object, param: str) -> None:
    count = _token_ids(to, value, param)
    if count:
        to.logprobs = True
        to.top_logprobs = max(to.top_logprobs, count)


def _prompt_logprob_tokens(to: Sampling, value: object, param: str) -> None:
    count = _token_ids(to, value, param)
    if count:
        to.prompt_logprobs = max(to.prompt_logprobs, count)


def _beam_search(to: Sampling, value: object, param: str) -> None:
    to.beam_search |= boolean(value, param)


def _allowed_tokens(to: Sampling, value: object, param: str) -> None:
    to.logit_bias += _token_ids(to, value, param)


def _bad_words(to: Sampling, value: object, param: str) -> None:
    to.logit_bias += len(texts(value, param))


def _logit_bias(to: Sampling, value: object, param: str) -> None:
    bias = mapping(value, param)
    if not bias:
        return
    to.logit_bias += len(bias)
    if kinds_of(bias.values(), param) <= {int, float} and max(map(len, bias)) <= MAX_NUMBER_CHARS:
        with suppress(ValueError):  # one of them is no whole number: below it is named
            _noted(to, list(map(int, bias)))
            return
    few(bias, param)
    for token, weight in bias.items():
        token_id = integer(token, f"{param}.{token[:20]}")
        number(weight, f"{param}.{token[:20]}")
        to.largest_token_id = max(to.largest_token_id, token_id or 0)


def _additive_penalty(to: Sampling, value: object, param: str) -> None:
    if number(value, param):
        to.penalties = True


def _repetition_penalty(to: Sampling, value: object, param: str) -> None:
    if number(value, param) not in (None, 1.0):
        to.penalties = True


def _min_tokens(to: Sampling, value: object, param: str) -> None:
    if integer(value, param):
        to.penalties = True  # kept by a penalizer of its own on the stop tokens


def _processor(to: Sampling, value: object, param: str) -> None:
    if texts(value, param):
        to.custom_logit_processor = True


def _logits_processors(to: Sampling, value: object, param: str) -> None:
    if items(value, param):
        to.custom_logit_processor = True


def _hidden_states(to: Sampling, value: object, param: str) -> None:
    modes = value if isinstance(value, list) else [value]
    if "last" in modes:
        to.return_hidden_states = True
        modes = [mode for mode in modes if mode != "last"]
    to.return_hidden_states |= any(booleans(modes, param))


def _top_logprobs(to: Sampling, value: object, param: str) -> None:
    """`top_logprobs` needs `logprobs: true` beside it in the chat dialect; the price is the engine's worst."""
    most = max([k if k >= 0 else WHOLE_VOCABULARY for k in integers(value, param)], default=0)
    to.top_logprobs = max(to.top_logprobs, most)


def _return_logprob(to: Sampling, value: object, param: str) -> None:
    to.logprobs |= any(booleans(value, param))


def _logprob_start(to: Sampling, value: object, param: str) -> None:
    asked = [start for start in integers(value, param) if start >= 0]
    if asked:
        to.prompt_logprobs = max(to.prompt_logprobs, 0)
        to.prompt_logprobs_start = min(asked)


def _prompt_logprobs(to: Sampling, value: object, param: str) -> None:
    if isinstance(value, bool):
        k: int | None = 0 if value else None
    else:
        k = integer(value, param)
    if k is not None:
        to.prompt_logprobs = max(to.prompt_logprobs, k if k >= 0 else WHOLE_VOCABULARY)


WHOLE_VOCABULARY = 1 << 17
"""vLLM reads -1 as "every token of the vocabulary"; the size is of the usual order, the exact one is the replica's."""


def _logprobs(to: Sampling, value: object, param: str) -> None:
    """A boolean in the chat dialect, the number of alternatives in the completions dialect."""
    if value is None or isinstance(value, bool):
        to.logprobs |= bool(value)
    elif isinstance(value, str) and not value.strip().lstrip("+-").isdigit():
        to.logprobs |= boolean(value, param)
    else:
        k = integer(value, param)
        if k is not None:
            to.logprobs = True
            to.top_logprobs = max(to.top_logprobs, k if k >= 0 else WHOLE_VOCABULARY)


def _echo(to: Sampling, value: object, param: str) -> None:
    to.echo |= boolean(value, param)


def _structured_outputs(to: Sampling, value: object, param: str) -> None:
    to.constraints.extend(structured_outputs_constraints(value, param))


_FIELDS: dict[str, Read] = {
    "top_k": _top_k,
    "n": _sequences,
    "best_of": _sequences,
    "beam_width": _sequences,
    "use_beam_search": _beam_search,
    "max_tokens": _max_tokens,
    "max_completion_tokens": _max_tokens,
    "max_new_tokens": _max_tokens,
    "max_output_tokens": _max_tokens,
    "stop": _stop,
    "stop_sequences": _stop,
    "stop_strs": _stop,
    "stop_token_ids": _stop_tokens,
    "stop_regex": _stop_regex,
    "stop_regex_strs": _stop_regex,
    "logit_bias": _logit_bias,
    "allowed_token_ids": _allowed_tokens,
    "bad_words": _bad_words,
    "frequency_penalty": _additive_penalty,
    "presence_penalty": _additive_penalty,
    "repetition_penalty": _repetition_penalty,
    "min_tokens": _min_tokens,
    "min_new_tokens": _min_tokens,
    "custom_logit_processor": _processor,
    "logits_processors": _logits_processors,
    "return_hidden_states": _hidden_states,
    "logprobs": _logprobs,
    "top_logprobs": _top_logprobs,
    "top_logprobs_num": _top_logprobs,
    "return_logprob": _return_logprob,
    "logprob_start_len": _logprob_start,
    "token_ids_logprob": _logprob_tokens,
    "logprob_token_ids": _logprob_tokens,
    "prompt_logprobs": _prompt_logprobs,
    "prompt_logprob_token_ids": _prompt_logprob_tokens,
    "echo": _echo,
    "structured_outputs": _structured_outputs,
}

SAMPLING_KEYS = frozenset(_FIELDS) | frozenset(DOORS)
"""Every field that can add hook cost. A body without any of them is plain."""


def read_sampling(params: Mapping[str, object], to: Sampling, prefix: str = "") -> Generator[None, None, None]:
    """Adds to `to` what `params` asks for; yields behind each field of many entries or much text.

    Raises:
        MalformedError: a recognised field holds a value that no engine accepts.
    """
    for name, value in params.items():
        if value is None:
            continue
        read = _FIELDS.get(name)
        if read is not None:
            read(to, value, prefix + name)
        elif name in DOORS:
            constraint = DOORS[name](value, prefix + name)
            if constraint is not None:
                to.constraints.append(constraint)
        else:
            continue
        if isinstance(value, list | dict | str) and len(value) > _MANY:
            yield


_MANY = 1_000
