"""The simulated GPU: a forward pass is a wait of computed length. Knows no sequence."""

import ctypes
import time

from replica.simulator.settings import ForwardModel

_PR_SET_TIMERSLACK = 29


def sharpen_timer() -> None:
    """Cut the calling thread's timer slack from Linux's default 50 µs to 1 ns, so that sleeps end on time.

    Elsewhere a no-op. Spinning the last stretch instead would hold the GIL against the HTTP thread.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


class Forward:
    """Waits out forward passes on the step thread.

    `extra_s` is SGLang's `/slow_down`: seconds added to every pass. It may be set from any thread.
    """

    def __init__(self, model: ForwardModel) -> None:
        self.model = model
        self.extra_s = 0.0

    def run(self, sequences: int, prompt_tokens: int) -> float:
        """Wait as long as a pass over `sequences` and `prompt_tokens` takes; returns the seconds that passed."""
        model = self.model
        start = time.perf_counter()
        duration = (model.base_us + model.per_seq_us * sequences + model.per_token_us * prompt_tokens) * 1e-6
        duration += self.extra_s
        if duration > 0:
            time.sleep(duration)
        return time.perf_counter() - start
