"""Token counts in OpenAI's `usage` object and SGLang's `metadata`, with SGLang's fields and order."""

from collections.abc import Iterable
from typing import Any

from replica.simulator.frontend import Choice


def usage(choices: Iterable[Choice], n: int) -> dict[str, Any]:
    """Of a whole reply: the prompt counts once for its `n` samples."""
    choices = list(choices)
    prompt = sum(c.prompt_tokens for c in choices if c.index % n == 0)
    return usage_object(prompt, sum(len(c.tokens) for c in choices))


def metadata(choice: Choice) -> dict[str, Any]:
    """Which weights produced a reply; here there is one version of none."""
    return {"weight_version": "default", "weight_versions": weight_versions(choice)}


def weight_versions(choice: Choice) -> list[dict[str, Any]]:
    return [{"version": "default", "start": 0, "end": len(choice.tokens)}]


def usage_object(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }
