"""An engine without a GPU: a real continuous-batching loop, real hooks, SGLang's HTTP, simulated forward passes.

What is real: one step thread that admits, steps and retires sequences together; grammar compilation off that thread
and SGLang's poll for it inside the step; mask fill and matcher advance by a real grammar engine over a real vocabulary
of 151,851 tokens; top-k logprobs detokenized and stop strings matched on decoded text, on the step thread.
What is simulated: the forward pass is a timed wait, the logits are seeded pseudo-logits, prompts mean nothing.

`python -m replica.simulator --help` lists the flags; `/get_server_info` says `"engine": "steplane-simulator"`.
"""

__version__ = "0.1.0"
"""Version of the simulator, reported by `/get_server_info`."""

SGLANG_VERSION = "0.5.23"
"""The SGLang release whose HTTP surface, metric names and scheduling quirks are reproduced."""
