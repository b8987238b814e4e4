"""What steps came to since it was last said: so that a reader that wants only the dear ones still learns of all.

    {"event": "rollup", "after": seq, "at": …, "steps": n, "starved": n, "step_us": …, "step_max_us": …,
     "forward_us": …, "hook_us": …, "sequences": n,
     "requests": {"RID": {"steps": n, "sum_us": …, "max_us": …, "kinds": {…}}}}

All of it in one line: a reader that loses its connection resumes after `after` and has counted nothing twice. Steps
whose thread was starved of CPU are counted and charged to nobody, hooks that still warm up are left out.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from replica.recorder.judge import WORKED
from replica.recorder.records import HookKind, StepRecord

# Short requests by the thousand make a line early, before it gets long.
_MOST_REQUESTS = 256
# SGLang: `ID_0`, `ID_1`; vLLM: `0_ID-12345678`, `1_ID-…` for samples and `ID-0-12345678`, `ID-1-…` for prompts.
_SEQUENCE = re.compile(r"^\d+_|(?:_\d+|-\d+-[0-9a-f]{8})$")


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

    def add(self, record: StepRecord, own: dict[str, dict[HookKind, float]]) -> None:
        """Count one step; `own` is `record.judged()`."""
        self.steps += 1
        self._step_us += record.step_us
        self._step_max_us = max(self._step_max_us, record.step_us)
        self._forward_us += record.forward_us
        self._hook_us += record.hook_us
        self._sequences += record.sequences
        if starved(record):
            self._starved += 1
            return
        for rid, kinds in own.items():
            tally = self._requests.get(rid)
            if tally is None:
                tally = self._requests[rid] = _Tally()
            us = min(sum(kinds.values()), record.cpu_us)
            tally.steps += 1
            tally.sum_us += us
            tally.max_us = max(tally.max_us, us)
            for kind, kind_us in kinds.items():
                tally.kinds[kind] = tally.kinds.get(kind, 0.0) + kind_us

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


def starved(record: StepRecord) -> bool:
    """Whether the step thread spent most of its hook time waiting for a CPU: such a step is nobody's fault."""
    return record.cpu_us < WORKED * record.hook_us


def dear(own: dict[str, dict[HookKind, float]], least_us: float) -> dict[str, dict[HookKind, float]]:
    """What is own to the requests that took at least `least_us` of a step, all sequences of each together."""
    sums = {rid: sum(kinds.values()) for rid, kinds in own.items()}
    if sum(sums.values()) < least_us:
        return {}
    totals: dict[str, float] = {}
    for rid, us in sums.items():
        owner = _owner(rid)
        totals[owner] = totals.get(owner, 0.0) + us
    return {rid: kinds for rid, kinds in own.items() if totals[_owner(rid)] >= least_us}


@lru_cache(maxsize=4096)
def _owner(rid: str) -> str:
    """What the ids of one request's sequences have in common, if it has several; its reader knows it exactly."""
    return _SEQUENCE.sub("", rid)
