"""Records as the feed's readers see them: JSON objects with an `event` and a `seq`.

Durations keep their unit in the name and one decimal of a µs. `at` is Unix time, worked out when the record is sent
from the age of the record, so that it follows the wall clock and no duration ever does.
"""

from collections.abc import Mapping
from typing import Any

from replica.recorder.records import CompileRecord, HookKind, Note, Offence, Record, StepRecord

Document = dict[str, Any]


def document(record: Record, unix_offset_s: float) -> Document:
    """`unix_offset_s`: Unix time minus the recorder's clock."""
    match record:
        case StepRecord():
            return {
                "event": "step",
                "seq": record.seq,
                "at": round(record.start_s + unix_offset_s, 6),
                "mode": record.mode,
                "sequences": record.sequences,
                "prompt_tokens": record.prompt_tokens,
                "after_idle": record.after_idle,
                "cold": list(record.cold),
                "step_us": _us(record.step_us),
                "forward_us": _us(record.forward_us),
                "hook_us": _us(record.hook_us),
                "cpu_us": _us(record.cpu_us),
                "shared_us": _us(record.shared_us()),
                "kinds": {kind: _us(us) for kind, us in record.by_kind().items()},
                "requests": requests_document(record.by_request()),
            }
        case Offence():
            return {
                "event": "offence",
                "seq": record.seq,
                "at": round(record.at_s + unix_offset_s, 6),
                "rid": record.rid,
                "limit": record.limit,
                "kind": record.kind,
                "us": _us(record.us),
                "limit_us": _us(record.limit_us),
                "abort": record.abort,
                "reason": record.reason,
                "stack": list(record.stack),
            }
        case CompileRecord():
            return {
                "event": "compile",
                "seq": record.seq,
                "at": round(record.at_s + unix_offset_s, 6),
                "rid": record.rid,
                "grammar": record.grammar,
                "ms": round(record.ms, 3),
                "error": record.error,
            }
        case Note():
            return {
                "event": "note",
                "seq": record.seq,
                "at": round(record.at_s + unix_offset_s, 6),
                "text": record.text,
            }


def requests_document(own: Mapping[str, Mapping[HookKind, float]]) -> Document:
    """Hook time in µs by request id and kind."""
    return {rid: {kind: _us(us) for kind, us in kinds.items()} for rid, kinds in own.items()}


def _us(us: float) -> float:
    return round(us, 1)
