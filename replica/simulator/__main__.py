"""`python -m replica.simulator`: flags, and the checks that need a clear word before anything starts."""

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from replica.simulator import SGLANG_VERSION, __version__
from replica.simulator.parent import signal_on_parent_death
from replica.simulator.settings import ForwardModel, Settings

# The step thread must get the GIL back promptly after its waits; CPython's default lets HTTP work hold it for 5 ms.
_SWITCH_INTERVAL_S = 0.0002


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 after an orderly stop, 1 if it could not start."""
    parser = _parser()
    flags = parser.parse_args(arguments)
    parent = os.getppid() if flags.exit_with_parent else None
    if parent is not None:
        signal_on_parent_death()
    try:
        # These need the extra's packages: a clear word instead of a traceback where they are missing.
        from replica.simulator.grammar import grammar_backend
        from replica.simulator.server import Listen, serve
        from replica.simulator.vocabulary import Vocabulary

        vocabulary = Vocabulary()
        backend = grammar_backend(
            flags.grammar_backend, vocabulary, any_whitespace=not flags.constrained_json_disable_any_whitespace
        )
    except ImportError as error:
        extra = "xgrammar" if flags.grammar_backend == "xgrammar" and error.name == "xgrammar" else "simulator"
        return _fail(f"the simulator needs {error.name}: pip install 'steplane[{extra}]'")
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # The vocabulary's 300,000 objects live as long as the process: keep the collector from walking them in a step.
    gc.freeze()
    listen = Listen(flags.host, flags.port, flags.fd)
    try:
        _runner()(serve(_settings(flags), listen, vocabulary, backend, parent=parent))
    except OSError as error:
        where = f"fd {flags.fd}" if flags.fd is not None else f"{flags.host}:{flags.port}"
        return _fail(f"cannot listen on {where}: {error.strerror or error}; choose another --port, 0 for any")
    return 0


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """uvloop's runner where it is installed, asyncio's elsewhere."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _fail(message: str) -> int:
    sys.stderr.write(f"steplane simulator: {message}\n")
    return 1


def _settings(flags: argparse.Namespace) -> Settings:
    return Settings(
        name=flags.name,
        model_name=flags.model_name,
        seed=flags.seed,
        forward=ForwardModel(flags.forward_base_us, flags.forward_per_seq_us, flags.forward_per_token_us),
        feed=flags.feed,
        grammar_backend=flags.grammar_backend,
        any_whitespace=not flags.constrained_json_disable_any_whitespace,
        grammar_poll_s=flags.grammar_poll_ms / 1000,
        grammar_max_polls=flags.grammar_max_polls,
        grammar_cache=flags.grammar_cache,
        grammar_workers=flags.grammar_workers,
        max_running_requests=flags.max_running_requests,
        max_queued_requests=flags.max_queued_requests,
        context_length=flags.context_length,
        max_total_tokens=flags.max_total_tokens,
        chunked_prefill_size=flags.chunked_prefill_size,
        reply_tokens=flags.reply_tokens,
    )


def _parser() -> argparse.ArgumentParser:
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m replica.simulator",
        description="One replica without a GPU: a real continuous-batching loop with real grammar, logprob and stop "
        f"hooks and simulated forward passes, speaking the HTTP of SGLang {SGLANG_VERSION}.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    add("--port", type=int, default=0, help="port to listen on, 0 for any (%(default)s)")
    add("--fd", type=int, help="serve on this inherited listening socket instead")
    add("--exit-with-parent", action="store_true", help="stop when the parent process ends")
    add("--name", default=default.name, help="name of the replica, in its ready line (%(default)s)")
    add("--model-name", default=default.model_name, help="name of the model served (%(default)s)")
    add("--seed", type=int, default=default.seed, help="seed of the pseudo-logits (%(default)s)")
    add("--forward-base-us", type=_not_negative, default=default.forward.base_us, help="µs of every forward pass")
    add("--forward-per-seq-us", type=_not_negative, default=default.forward.per_seq_us, help="µs per sequence in it")
    add(
        "--forward-per-token-us",
        type=_not_negative,
        default=default.forward.per_token_us,
        help="µs per prompt token in it",
    )
    add(
        "--feed", default=default.feed, help="step feed: HOST:PORT, auto (1000 above the own port) or off (%(default)s)"
    )
    add("--grammar-backend", choices=("llguidance", "xgrammar"), default=default.grammar_backend)
    add(
        "--constrained-json-disable-any-whitespace",
        action=argparse.BooleanOptionalAction,
        default=not default.any_whitespace,
        help="admit no free whitespace in constrained JSON (on; SGLang's own default is off)",
    )
    add("--grammar-poll-ms", type=_not_negative, default=default.grammar_poll_s * 1000, help="longest wait in a step")
    add("--grammar-max-polls", type=_positive, default=default.grammar_max_polls, help="steps until a compile fails")
    add("--grammar-cache", type=_positive, default=default.grammar_cache, help="compiled grammars kept")
    add("--grammar-workers", type=int, default=default.grammar_workers, help="compile threads, 0: processors + 4")
    add("--max-running-requests", type=_positive, default=default.max_running_requests)
    add("--max-queued-requests", type=_positive, default=default.max_queued_requests, help="more are refused with 503")
    add("--context-length", type=_positive, default=default.context_length)
    add("--max-total-tokens", type=_positive, default=default.max_total_tokens, help="the base of token_usage")
    add("--chunked-prefill-size", type=_positive, default=default.chunked_prefill_size, help="prompt tokens per pass")
    add(
        "--reply-tokens",
        type=_range,
        default=default.reply_tokens,
        metavar="MIN:MAX",
        help="bounds of an unconstrained reply's natural length (96:384)",
    )
    return parser


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text}")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return value


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    try:
        bounds = int(low), int(high)
    except ValueError:
        bounds = 0, 0
    if not 1 <= bounds[0] <= bounds[1]:
        raise argparse.ArgumentTypeError(f"expected MIN:MAX with 1 <= MIN <= MAX, got {text}")
    return bounds


if __name__ == "__main__":
    sys.exit(main())
