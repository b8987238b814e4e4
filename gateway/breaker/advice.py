"""What to tell the client of a quarantined request: what was over which limit, and how to stay within it."""

from gateway.breaker.trip import Cause, Trip

_BY_HOOK = {
    "grammar": "make the grammar cheaper: `maxLength` in place of counted repetitions, fewer nested unions and "
    "optional properties, shorter enums, no free EBNF; `steplane explain` names the dearest places",
    "prompt_logprobs": "ask for prompt logprobs of fewer tokens (`logprob_start_len`, shorter prompts) or not at all",
    "logprobs": "ask for fewer alternatives (`top_logprobs` of at most 20) and fewer sequences (`n`)",
    "stop": "use fewer and shorter stop strings, and no `stop_regex` with nested or adjacent unbounded repetitions",
    "sampling": "leave out custom logit processors and long `logit_bias` lists",
}
_BY_CAUSE = {
    Cause.compile: "make the grammar smaller: fewer properties and tools, no `oneOf` nested deeply, no product of "
    "counted repetitions in a pattern; `steplane explain` names the dearest places",
    Cause.slope: "bound the output (`max_tokens`), or bound the part of the grammar that may go on without end, since "
    "each token takes longer than the one before",
    Cause.crash: "the engine does not survive it: look for contradictory bounds, ids outside of the vocabulary and "
    "deep nesting, and report it to the engine's maintainers",
    Cause.tenant: "look at what each of the signatures is over (`steplane quarantine list`) and send them less often",
}
_OTHERWISE = "`steplane explain` says what each part of the request costs"


def advice_on(trip: Trip | None) -> str:
    """How to stay within the limit, in one sentence without a full stop."""
    if trip is None:
        return "ask the operator who quarantined it"
    if trip.cause in _BY_CAUSE:
        return _BY_CAUSE[trip.cause]
    hook = trip.hook or ""
    return _BY_HOOK.get("grammar" if hook.startswith("grammar") else hook, _OTHERWISE)


def said_of(trip: Trip) -> str:
    """What was over which limit and by how much, as a sentence without a full stop."""
    pool = f" of pool {trip.pool!r}" if trip.pool else ""
    mostly = f", mostly by {trip.hook}" if trip.hook else ""
    within = f"within {trip.window_s:g} s"
    match trip.cause:
        case Cause.over_budget:
            return (
                f"{trip.count} steps {within} were over the step budget{pool}: up to {_us(trip.observed)} of hook "
                f"time, {_times(trip)} the budget of {_us(trip.limit)}{mostly}"
            )
        case Cause.hard_limit:
            return (
                f"one step took {_us(trip.observed)} of hook time, {_times(trip)} the hard limit{pool} "
                f"of {_us(trip.limit)}{mostly}"
            )
        case Cause.compile:
            return (
                f"its grammar took {_us(trip.observed * 1e3)} to compile, {_times(trip)} the limit{pool} "
                f"of {_us(trip.limit * 1e3)}"
            )
        case Cause.aborts:
            return f"the engine's watchdog named {trip.count} of its requests {within}{pool}{mostly}"
        case Cause.slope:
            return (
                f"its hook time rises with each token, within {trip.count} steps to {_us(trip.observed)}, and will "
                f"cross the step budget{pool} of {_us(trip.limit)}{mostly}"
            )
        case Cause.crash:
            return f"{trip.count} replicas died within seconds of receiving it, the last one {trip.replica!r}{pool}"
        case Cause.tenant:
            return f"{trip.count} different kinds of requests of tenant {trip.tenant!r} were quarantined {within}"


def _us(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.3g} s"
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"


def _times(trip: Trip) -> str:
    return f"{trip.observed / trip.limit:.3g} times" if trip.limit > 0 else "over"
