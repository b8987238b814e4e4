"""What a step pays for being recorded: `python -m loadtest.bench_recorder`.

Runs the recorder as an engine's step thread does, without an engine: batches of 64 plain sequences, of 64 with a
grammar (fill, accept and stop timed for each), and of 64 with log probabilities, into a real ring. Prints µs a step and
the part of a 10 ms step; exits 1 when a batch costs more than 1 %.
"""

import sys
import time

from replica.recorder.judge import Limits
from replica.recorder.recorder import StepRecorder
from replica.recorder.records import KIND_INDEX, HookKind
from replica.recorder.ring import RingWriter

BATCH = 64
STEP_US = 10_000.0
LIMIT = 0.01
ROUNDS = 2_000
CASES: dict[str, tuple[HookKind, ...]] = {
    "plain": (),
    "log probabilities": (HookKind.logprobs,),
    "grammar": (HookKind.grammar_fill, HookKind.grammar_accept),
    "grammar and stop strings": (HookKind.grammar_fill, HookKind.grammar_accept, HookKind.stop),
}


def step_us(kinds: tuple[HookKind, ...]) -> float:
    """The recorder's own time in a step, in µs: median of many."""
    recorder = StepRecorder(RingWriter(16 << 20), Limits(budget_us=1_000.0))
    rids = [f"chatcmpl-{number:032x}" for number in range(BATCH)]
    indices = [KIND_INDEX[kind] for kind in kinds]
    now, hooks = time.perf_counter, recorder.hooks
    times: list[float] = []
    for _ in range(ROUNDS):
        begin = now()
        recorder.step_begins()
        recorder.batch("decode", BATCH, 0)
        recorder.forward(9_000.0)
        first = len(hooks)
        for index in indices:
            for rid in rids:
                start = now()
                recorder.current = (rid, index, start)
                hooks.append((rid, index, (now() - start) * 1e6))
        recorder.current = None
        recorder.rest_of_section(500.0, first)
        times.append(now() - begin)
    times.sort()
    return times[len(times) // 2] * 1e6


def main() -> int:
    """Print the table."""
    worst = 0.0
    print(f"recorder, batch of {BATCH}, against a step of {STEP_US / 1e3:g} ms (limit {LIMIT:.0%})")
    for name, kinds in CASES.items():
        us = step_us(kinds)
        worst = max(worst, us / STEP_US)
        print(f"  {name:26} {us:7.1f} us a step  {us / STEP_US:7.3%}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
