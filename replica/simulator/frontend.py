"""The front end: from requests to sequences, and from outputs to text. Lives in the event loop's thread.

Owns request ids and the open replies. The step thread hands over a whole step's outputs with one call into the loop.
Knows no HTTP.
"""

import asyncio
import codecs
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from uuid import uuid4

from replica.simulator.engine import Engine
from replica.simulator.finish import Finish
from replica.simulator.metrics import Metrics
from replica.simulator.sampling_params import SamplingParams
from replica.simulator.sequence import LogprobsWanted, Output, Sequence, TokenLogprobs
from replica.simulator.settings import Settings
from replica.simulator.stop import StopMatcher
from replica.simulator.vocabulary import Vocabulary

# Longer prompts are tokenized off the loop: 16 KB take about a millisecond.
_INLINE_PROMPT = 16_384


class Choice:
    """One sequence as its client sees it: detokenized incrementally, held back where SGLang holds back."""

    def __init__(self, reply: "Reply", index: int, sequence: Sequence, vocabulary: Vocabulary, *, stream: bool) -> None:
        self.reply = reply
        self.index = index
        self.sequence = sequence
        self.stream = stream
        self.arrived_s = time.perf_counter()
        self.last_s = 0.0
        self.tokens: list[int] = []
        self.parts: list[str] = []
        self.prompt_logprobs: list[TokenLogprobs] = []
        self.logprobs: list[TokenLogprobs] = []
        self.finish: Finish | None = None
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    @property
    def rid(self) -> str:
        return self.sequence.rid

    @property
    def prompt_tokens(self) -> int:
        return len(self.sequence.prompt)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def take(self, output: Output) -> str | None:
        """Add an output; the text that may now be sent, or None if its step is to be held back entirely."""
        self.finish = output.finish
        if output.prompt_logprobs is not None:
            self.prompt_logprobs = output.prompt_logprobs
        if output.logprobs is not None:
            self.logprobs.append(output.logprobs)
        if output.token is not None and self.sequence.max_new_tokens > 0:
            self.tokens.append(output.token)
            self._held += self._decode(output.token)
        if output.hold and output.finish is None:
            return None
        delta, self._held = self._held, ""
        if output.finish is not None:
            delta = self._trim(delta + self._decoder.decode(b"", True), output.finish)
        self.parts.append(delta)
        return delta

    def _decode(self, token: int) -> str:
        params = self.sequence.params
        if params.skip_special_tokens and token >= self._vocabulary.first_special:
            return ""
        finish = self.finish
        if finish is not None and finish.type == "stop" and finish.matched == token and not params.no_stop_trim:
            return ""
        return self._decoder.decode(self._vocabulary.token_bytes[token])

    def _trim(self, delta: str, finish: Finish) -> str:
        """Cut a matched stop string, and what follows it, off the end. A `stop_regex` is never cut, as in SGLang."""
        if not isinstance(finish.matched, str) or self.sequence.params.no_stop_trim:
            return delta
        cut = delta.find(finish.matched)
        return delta if cut < 0 else delta[:cut]


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step adds to one choice. `text` is empty where a token was half a character or an end mark."""

    choice: Choice
    text: str
    logprobs: list[TokenLogprobs]
    finish: Finish | None


class Reply:
    """The choices of one request, and the events that fill them. Close it, whatever happens: that frees the engine."""

    def __init__(self, engine: Engine, forget: Callable[["Choice"], None]) -> None:
        self.choices: list[Choice] = []
        self._engine = engine
        self._forget = forget
        self._outputs: deque[tuple[Choice, Output]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._open = 0

    def add(self, choice: Choice) -> None:
        self.choices.append(choice)
        self._open += 1

    def push(self, choice: Choice, output: Output) -> None:
        """Called by the front end for every output."""
        self._outputs.append((choice, output))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def deltas(self) -> AsyncIterator[Delta]:
        """One delta a token and choice, until all choices have finished."""
        sent: dict[int, int] = {}
        while self._open:
            if not self._outputs:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            while self._outputs:
                choice, output = self._outputs.popleft()
                text = choice.take(output)
                if text is None:
                    continue
                if output.finish is not None:
                    self._open -= 1
                before = sent.get(choice.index, 0)
                sent[choice.index] = len(choice.logprobs)
                yield Delta(choice, text, choice.logprobs[before:], output.finish)

    async def complete(self) -> list[Choice]:
        """Wait for all choices to finish."""
        async for _ in self.deltas():
            pass
        return self.choices

    def close(self) -> None:
        """Abort at the engine what has not finished."""
        for choice in self.choices:
            if choice.sequence.finish is None:
                self._engine.cancel(choice.sequence)
            self._forget(choice)


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt of a request, tokenized. `rid` None: a fresh one."""

    prompt: list[int]
    params: SamplingParams
    rid: str | None = None
    logprobs: LogprobsWanted | None = None
    stream: bool = False


@dataclass(slots=True)
class FrontEnd:
    """Opens replies, and fills them with what the engine ships."""

    settings: Settings
    vocabulary: Vocabulary
    metrics: Metrics
    loop: asyncio.AbstractEventLoop
    engine: Engine = field(init=False)
    _open: dict[str, Choice] = field(default_factory=dict)

    def ship(self, outputs: list[Output]) -> None:
        """Called on the step thread, once a step."""
        try:
            self.loop.call_soon_threadsafe(self._deliver, outputs)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def _deliver(self, outputs: list[Output]) -> None:
        now = time.perf_counter()
        for output in outputs:
            choice: Choice = output.outlet
            self.metrics.output(choice, output, now)
            choice.last_s = now
            choice.reply.push(choice, output)

    async def encode(self, text: str) -> list[int]:
        """Raises ValueError for text that cannot be tokenized."""
        if len(text) < _INLINE_PROMPT:
            return self.vocabulary.encode(text)
        return await self.loop.run_in_executor(None, self.vocabulary.encode, text)

    def open(self, asks: list[Ask]) -> Reply:
        """Submit all prompts of a request, `n` sequences each.

        Raises:
            ValueError: in SGLang's words, before anything was submitted.
        """
        reply = Reply(self.engine, self._forget)
        sequences: list[tuple[Sequence, int]] = []
        rids: set[str] = set()
        for ask in asks:
            for number in range(ask.params.n):
                # Parallel samples get ids of their own that an abort of the request's id still reaches.
                rid = ask.rid or uuid4().hex
                rid = rid if ask.params.n == 1 else f"{rid}_{number}"
                if rid in rids or rid in self._open:
                    raise ValueError(f"Duplicate request ID detected: {rid}")
                rids.add(rid)
                sequences.append((self._sequence(ask, rid), number))
        for (sequence, number), ask in zip(sequences, (a for a in asks for _ in range(a.params.n)), strict=True):
            choice = Choice(reply, len(reply.choices), sequence, self.vocabulary, stream=ask.stream)
            sequence.outlet = choice
            self.engine.sampler.prepare(sequence, number)
            reply.add(choice)
            self._open[sequence.rid] = choice
            self.metrics.request(len(sequence.prompt), stream=ask.stream, grammar=ask.params.grammar is not None)
        for sequence, _ in sequences:
            self.engine.submit(sequence)
        return reply

    def _forget(self, choice: Choice) -> None:
        self._open.pop(choice.rid, None)

    def _sequence(self, ask: Ask, rid: str) -> Sequence:
        params, context = ask.params, self.settings.context_length
        params.verify_vocabulary(self.vocabulary.size)
        length = len(ask.prompt)
        if length >= context:
            raise ValueError(
                f"The input ({length} tokens) is longer than the model's context length ({context} tokens)."
            )
        if any(not 0 <= token < self.vocabulary.size for token in ask.prompt):
            raise ValueError(f"The input_ids contain a token outside [0, {self.vocabulary.size - 1}].")
        if params.max_new_tokens is not None and params.max_new_tokens + length > context:
            raise ValueError(
                f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested "
                f"a total of {params.max_new_tokens + length} tokens: {length} tokens from the input messages and "
                f"{params.max_new_tokens} tokens for the completion. Please reduce the number of tokens in the input "
                "messages or the completion to fit within the limit."
            )
        limit = context - length - 1 if params.max_new_tokens is None else params.max_new_tokens
        stop = None
        if params.stop or params.stop_regex:
            stop = StopMatcher(params.stop, params.stop_regex, self.vocabulary)
        return Sequence(rid, ask.prompt, params, None, limit, logprobs=ask.logprobs, stop=stop)
