"""What steps came to since it was last said: so that a reader that wants only the dear ones still learns of all.

    {"event": "rollup", "after": seq, "at": …, "steps": n, "starved": n, "step_us": …, "step_max_us": …,
     "forward_us": …, "hook_us": …, "sequences": n,
     "requests": {"RID": {"steps": n, "sum_us": …, "max_us": …, "kinds": {…}}}}

All of it in one line: a reader that loses its connection resumes after `after` and has counted nothing twice. What a
request took is the part of its hooks' time that the step thread spent on a CPU. Steps in which that was little are
counted and charged to nobody; hooks that still warm up are left out.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from replica.recorder.records import HookKind, StepRecord

# Of a step's hook time at least this part must have been CPU time for anybody to have taken it.
_WORKED = 0.25
# Short requests by the thousand make a line early, before it gets long.
_MOST_REQUESTS = 256
# SGLang: `ID_0` for prompts, `ID_0000000007` or `ID_0_0000000007` for samples (replica/sglang/requestids.py).
# vLLM: `ID-0-12345678` for prompts, `0_ID-12345678` for samples.
_SEQUENCE = re.compile(r"^\d+_|(?:(?:_\d+){1,2}|-\d+-[0-9a-f]{8})$")


@dataclass(slots=True)
class _Tally:
    steps: int = 0
    sum_us: float = 0.0
    max_us: float = 0.0
    kinds: dict[HookKind, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "sum_us": round(self.sum_us, 1),
            "max_us": round(self.max_us, 1),
            "kinds": {kind: round(us, 1) for kind, us in self.kinds.items()},
        }


@dataclass(slots=True)
class Rollup:
    """Sums over the steps added since the last `take`."""

    steps: int = 0
    _starved: int = 0
    _step_us: float = 0.0
    _step_max_us: float = 0.0
    _forward_us: float = 0.0
    _hook_us: float = 0.0
    _sequences: int = 0
    _requests: dict[str, _Tally] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether it should be taken now, however young it is."""
        return len(self._requests) >= _MOST_REQUESTS

    def add(self, record: StepRecord) -> None:
        """Count one step."""
        self.steps += 1
        self._step_us += record.step_us
        self._step_max_us = max(self._step_max_us, record.step_us)
        self._forward_us += record.forward_us
        self._hook_us += record.hook_us
        self._sequences += record.sequences
        worked = worked_part(record)
        if worked < _WORKED:
            self._starved += 1
            return
        for rid, kinds in record.judged().items():
            tally = self._requests.get(rid)
            if tally is None:
                tally = self._requests[rid] = _Tally()
            us = sum(kinds.values()) * worked
            tally.steps += 1
            tally.sum_us += us
            tally.max_us = max(tally.max_us, us)
            for kind, kind_us in kinds.items():
                tally.kinds[kind] = tally.kinds.get(kind, 0.0) + kind_us * worked

    def take(self, after: int, unix_s: float) -> dict[str, Any]:
        """The line, made at `unix_s`, and a fresh start. `after`: number of the last record that was looked at."""
        line = {
            "event": "rollup",
            "after": after,
            "at": round(unix_s, 6),
            "steps": self.steps,
            "starved": self._starved,
            "step_us": round(self._step_us, 1),
            "step_max_us": round(self._step_max_us, 1),
            "forward_us": round(self._forward_us, 1),
            "hook_us": round(self._hook_us, 1),
            "sequences": self._sequences,
            "requests": {rid: tally.document() for rid, tally in self._requests.items()},
        }
        self.steps = self._starved = self._sequences = 0
        self._step_us = self._step_max_us = self._forward_us = self._hook_us = 0.0
        self._requests = {}
        return line


def worked_part(record: StepRecord) -> float:
    """The part of a step's hook time that the step thread worked, rather than waited for a CPU or the GIL."""
    return min(1.0, record.cpu_us / record.hook_us) if record.hook_us > 0 else 1.0


def dear(record: StepRecord, least_us: float) -> dict[str, dict[HookKind, float]]:
    """What is own to the requests that took at least `least_us` of a step, all sequences of each together."""
    worked = worked_part(record)
    if worked < _WORKED or record.hook_us * worked < least_us:
        return {}
    own = record.judged()
    totals: dict[str, float] = {}
    for rid, kinds in own.items():
        owner = _owner(rid)
        totals[owner] = totals.get(owner, 0.0) + sum(kinds.values())
    return {rid: kinds for rid, kinds in own.items() if totals[_owner(rid)] * worked >= least_us}


@lru_cache(maxsize=4096)
def _owner(rid: str) -> str:
    """What the ids of one request's sequences have in common, if it has several; its reader knows it exactly."""
    return _SEQUENCE.sub("", rid)
