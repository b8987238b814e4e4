"""Whether structured replies are what was asked: JSON that satisfies its schema. Runs when the slice is over."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

from loadtest.client.outcome import Outcome

_MOST = 500
"""Replies of one slice that are looked at, evenly spread: a slow validator must not outlast the run."""


class ValidationMissingError(Exception):
    """There is no validator."""


def validate(outcomes: Sequence[Outcome]) -> None:
    """Fill in `valid` of the outcomes that have a reply to validate, and let the replies go.

    Raises:
        ValidationMissingError: jsonschema is not installed.
    """
    kept = [each for each in outcomes if each.reply is not None and not each.error and not each.left]
    for each in kept[:: max(1, -(-len(kept) // _MOST))]:
        _validate(each)
    for each in outcomes:
        each.reply = None


def _validate(outcome: Outcome) -> None:
    assert outcome.reply is not None
    try:
        text, reason = reply_text(bytes(outcome.reply))
        if reason == "length":
            return  # cut where the client wanted it
        value = json.loads(text)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        outcome.valid, outcome.why_invalid = False, f"no JSON: {error}"
        return
    complaint = next(_validator(orjson.dumps(outcome.planned.schema)).iter_errors(value), None)
    outcome.valid = complaint is None
    outcome.why_invalid = "" if complaint is None else complaint.message[:200]


def reply_text(reply: bytes) -> tuple[str, str | None]:
    """The text of a chat completion's first choice, streamed or not, and why it ended.

    Raises ValueError, KeyError, IndexError or TypeError where it is none.
    """
    if not reply.lstrip().startswith((b"data:", b"event:", b":")):
        choice = orjson.loads(reply)["choices"][0]
        return choice["message"]["content"] or "", choice["finish_reason"]
    parts: list[str] = []
    reason: str | None = None
    for line in reply.splitlines():
        if not line.startswith(b"data:") or line.endswith(b"[DONE]"):
            continue
        for choice in orjson.loads(line[5:]).get("choices", ()):
            if choice.get("index", 0) == 0:
                parts.append(choice.get("delta", {}).get("content") or "")
                reason = choice.get("finish_reason") or reason
    return "".join(parts), reason


@lru_cache(maxsize=512)
def _validator(schema: bytes) -> Any:
    try:
        from jsonschema import validators
    except ImportError:
        raise ValidationMissingError(
            "structured replies can't be validated without jsonschema: pip install 'steplane[loadtest]'"
        ) from None
    document = orjson.loads(schema)
    return validators.validator_for(document)(document)
