"""Compiling a grammar in a child process first, because a child can be killed and a thread cannot.

`Trial` is the engine's side. The child (`python -m replica.grammar.trial`) gets its set-up and then grammars as lines
of JSON, and answers each with a line. What it compiled is thrown away: shipping it back costs more than compiling it
again, now that it is known to end in time.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import IO, Any, Protocol

from replica.grammar.pool import COMPILE_NICENESS

_STARTS_WITHIN_S = 120.0
_CACHE_BYTES = 256 << 20
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class TrialSetup:
    """What the child needs to compile as the engine does.

    backend:   `xgrammar` or `llguidance`.
    tokenizer: xgrammar's serialized `TokenizerInfo`, or the Hugging Face `tokenizer.json`.
    options:   arguments of the backend's compile functions.
    """

    backend: str
    tokenizer: str
    options: dict[str, Any]


class Trial:
    """One child at a time; callers in several threads take turns."""

    def __init__(self, setup: TrialSetup) -> None:
        self._setup = setup
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False

    def warm_up(self) -> None:
        """Start the child now rather than with the first grammar, and get it ready in the background.

        Call it on a thread that lives as long as the engine: the child ends with the thread that started it.
        """
        with self._turn:
            self._start()
        threading.Thread(target=self._get_ready_alone, name="steplane-trial", daemon=True).start()

    def ends_within(self, kind: str, text: str, limit_s: float) -> bool:
        """Whether a grammar compiles, or is refused, within `limit_s`. True as well when there is no child to ask."""
        with self._turn:
            process = self._running()
            if process is None:
                return True
            try:
                _send(process, {"kind": kind, "text": text})
                answered = _receive(process, limit_s) is not None
            except OSError:
                # It died of the grammar (out of memory, a crash in native code): the engine must not try it.
                answered = False
            if not answered:
                self._kill()
            return answered

    def close(self) -> None:
        """End the child."""
        self._kill()

    def _get_ready_alone(self) -> None:
        with self._turn:
            self._running()

    def _running(self) -> subprocess.Popen[bytes] | None:
        """A child that waits for grammars; None: there is none to be had."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        if not self._ready:
            self._get_ready()
        return self._process

    def _start(self) -> None:
        self._ready = False
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "replica.grammar.trial"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            )

    def _get_ready(self) -> None:
        process, setup = self._process, self._setup
        if process is None:
            return
        try:
            _send(process, {"backend": setup.backend, "tokenizer": setup.tokenizer, "options": setup.options})
            answer = _receive(process, _STARTS_WITHIN_S)
        except OSError:
            answer = None
        self._ready = answer is not None and "error" not in answer
        if not self._ready:
            self._kill()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _send(process: subprocess.Popen[bytes], fields: dict[str, Any]) -> None:
    pipe = process.stdin
    if pipe is None:
        raise BrokenPipeError
    pipe.write(json.dumps(fields).encode() + b"\n")
    pipe.flush()


def _receive(process: subprocess.Popen[bytes], limit_s: float) -> dict[str, Any] | None:
    """The next answer; None: not within `limit_s`. BrokenPipeError: the child has gone."""
    pipe = process.stdout
    if pipe is None:
        raise BrokenPipeError
    deadline = time.monotonic() + limit_s
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        data = os.read(pipe.fileno(), 65536)
        if not data:
            raise BrokenPipeError
        line += data
    answer = json.loads(line)
    return answer if isinstance(answer, dict) else None


class Compiler(Protocol):
    """Compiles one grammar and forgets it; raises whatever the backend raises when it refuses it."""

    def __call__(self, kind: str, text: str, /) -> None: ...


def xgrammar_compiler(tokenizer: str, options: dict[str, Any]) -> Compiler:
    """A compiler as SGLang's and vLLM's xgrammar backends set it up."""
    import xgrammar

    info = xgrammar.TokenizerInfo.deserialize_json(tokenizer)
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_limit_bytes=_CACHE_BYTES)

    def compile_once(kind: str, text: str) -> None:
        if kind == "json":
            compiler.compile_json_schema(text, **options)
        elif kind == "regex":
            compiler.compile_regex(text)
        elif kind == "structural_tag":
            compiler.compile_structural_tag(text)
        else:
            compiler.compile_grammar(text)

    return compile_once


def llguidance_compiler(tokenizer: str, options: dict[str, Any]) -> Compiler:
    """A matcher as SGLang's llguidance backend makes it, its first mask included."""
    import llguidance

    vocabulary = llguidance.LLTokenizer(tokenizer, **options.get("vocabulary", {}))

    def compile_once(kind: str, text: str) -> None:
        if kind == "json":
            grammar = llguidance.LLMatcher.grammar_from_json_schema(text, defaults=options.get("json", {}))
        else:
            grammar = llguidance.grammar_from("regex" if kind == "regex" else "ebnf", text)
        llguidance.LLMatcher(vocabulary, grammar, log_level=0).compute_logit_bias()

    return compile_once


COMPILERS = {"xgrammar": xgrammar_compiler, "llguidance": llguidance_compiler}


def _die_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Of all processes on the machine, this one is missed least.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """The child: compile what comes until there is nothing more."""

    def answer(fields: dict[str, Any]) -> None:
        answers.write(json.dumps(fields).encode() + b"\n")
        answers.flush()

    setup = json.loads(requests.readline())
    try:
        compile_once = COMPILERS[setup["backend"]](setup["tokenizer"], setup["options"])
    except Exception as error:
        answer({"error": str(error)})
        return
    answer({"ready": True})
    for line in requests:
        asked = json.loads(line)
        start = time.perf_counter()
        try:
            compile_once(asked["kind"], asked["text"])
        except Exception as error:
            answer({"error": str(error)})
        else:
            answer({"ms": (time.perf_counter() - start) * 1e3})


if __name__ == "__main__":
    _die_with_parent()
    with contextlib.suppress(OSError):
        os.nice(COMPILE_NICENESS)
    serve(sys.stdin.buffer, sys.stdout.buffer)
