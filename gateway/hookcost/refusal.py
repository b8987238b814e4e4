"""The policy applied to one reading: what must not reach an engine, and what is heavy by a limit. Analyses no
schema."""

from functools import lru_cache

from gateway.hookcost.bill import Bill, Fault
from gateway.hookcost.classification import Refusal
from gateway.hookcost.pattern import TOO_MANY_VALUES
from gateway.hookcost.policy import ALLOW, HEAVY, REJECT, Policy
from gateway.hookcost.reading import Reading
from gateway.hookcost.regex import MAX_WORK, RegexBoundError, RegexError, read_regex

_STOP_REGEX_WORK = 5
"""Beside the steps of reading one."""


def refusal_of(reading: Reading, policy: Policy) -> Refusal | None:
    """The error that the request's parameters are answered with, or None where they may pass."""
    features = reading.features
    alternatives = max(features.top_logprobs, features.prompt_logprobs)
    if alternatives > policy.max_top_logprobs:
        limit = policy.max_top_logprobs
        return _too_large("top_logprobs", f"at most {limit} alternatives per token are served, not {alternatives}")
    sequences = features.n // max(1, features.batch)
    if sequences > policy.max_sequences:
        return _too_large("n", f"at most {policy.max_sequences} sequences per prompt are served, not {sequences}")
    if reading.largest_token_id > policy.max_token_id:
        return _too_large("logit_bias", f"token id {reading.largest_token_id} is beyond the vocabulary")
    if reading.stop_regex and policy.nonlinear_stop_regex == REJECT:
        why = _slow_stop_regex(reading.stop_regex)
        if why is not None:
            return Refusal(400, "nonlinear_stop_regex", f"{why}; use plain `stop` strings", "stop_regex")
    return None


def _slow_stop_regex(sources: tuple[str, ...]) -> str | None:
    """Why the `stop_regex` of a request may hold up the step thread."""
    left = MAX_WORK
    for source in sources:
        if left < min(len(source), MAX_WORK):
            return f"`stop_regex`: {len(sources)} expressions are more than can be looked at"
        why, work = judged(source)
        if why is not None:
            return f"`stop_regex` {source[:60]!r} {why}"
        left -= work
    return None


def heavy_by_limit(reading: Reading, policy: Policy) -> str | None:
    """The limit by which the request's parameters make it heavy."""
    features = reading.features
    alternatives = max(features.top_logprobs, features.prompt_logprobs)
    if alternatives > policy.heavy_top_logprobs:
        return f"more than {policy.heavy_top_logprobs} alternatives per token ({alternatives})"
    if reading.stop_regex and policy.nonlinear_stop_regex == HEAVY:
        return _slow_stop_regex(reading.stop_regex)
    return None


def grammar_fault(bill: Bill, param: str, policy: Policy) -> tuple[Refusal | None, str | None]:
    """What the policy does about a grammar's faults: the refusal, or the reason for which it is heavy."""
    heavy = None
    faults = list(bill.faults)
    if bill.peaks.get("enum_values", bill.peaks.get("literal_values", 0.0)) > policy.max_enum_values:
        faults.append(Fault(TOO_MANY_VALUES, f"an `enum` of more than {policy.max_enum_values:,} values"))
    for code, message in faults:
        action = policy.faults.get(code, ALLOW)
        if action == REJECT:
            return Refusal(400, code, f"`{param}`: {message}.", param), None
        if action == HEAVY:
            heavy = message
    return None, heavy


@lru_cache(maxsize=1024)
def judged(source: str) -> tuple[str | None, int]:
    """Why a backtracking engine may take more than linear time for a regex, or None where it does not; and the steps
    that finding out took."""
    try:
        regex = read_regex(source)
    except RegexBoundError as error:
        return f"is {error}", MAX_WORK
    except RegexError as error:
        return f"does not compile: {error}", MAX_WORK
    why = None
    if regex.nested_loops > 1:
        why = "has an unbounded repetition inside another and may take exponential time"
    elif regex.adjacent_loops:
        why = "has unbounded repetitions beside each other over the same characters and may take polynomial time"
    elif regex.backreference:
        why = "has a backreference"
    return why, regex.work + _STOP_REGEX_WORK


def _too_large(param: str, message: str) -> Refusal:
    return Refusal(400, "value_too_large", f"`{param}`: {message}.", param)
