"""The optional backend, where its package is installed (it brings torch, so ordinary test runs skip this)."""

import json
from typing import Any

import jsonschema
import pytest

pytest.importorskip("xgrammar", reason="the extra steplane[xgrammar] is not installed")

from replica.simulator.grammar import GrammarBackend, GrammarError, GrammarSpec, grammar_backend
from replica.simulator.mask import Mask
from replica.simulator.sampler import Sampler
from replica.simulator.sampling_params import SamplingParams
from replica.simulator.sequence import Sequence
from replica.simulator.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def xgrammar(vocabulary: Vocabulary) -> GrammarBackend:
    return grammar_backend("xgrammar", vocabulary, any_whitespace=False)


def reply(backend: GrammarBackend, vocabulary: Vocabulary, sampler: Sampler, spec: GrammarSpec) -> str:
    grammar, mask = backend.compile(spec).copy(), Mask(vocabulary.size)
    sequence = Sequence("r", [1], SamplingParams(max_new_tokens=300, grammar=spec), None, 300)
    sampler.prepare(sequence, 0)
    while len(sequence.output) < 300:
        grammar.fill(mask)
        sequence.output.append(sampler.masked(sequence, mask))
        if grammar.accept(sequence.output[-1]):
            return vocabulary.decode(sequence.output, skip_special=True)
    raise AssertionError("the reply did not close")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
        {"type": "array", "items": {"type": "string"}, "minItems": 2},
        {"enum": ["x", 3]},
    ],
)
def test_json_replies_validate(
    xgrammar: GrammarBackend, vocabulary: Vocabulary, sampler: Sampler, schema: dict[str, Any]
) -> None:
    text = reply(xgrammar, vocabulary, sampler, GrammarSpec("json", json.dumps(schema)))
    jsonschema.validate(json.loads(text), schema)


def test_other_kinds_compile_and_match(xgrammar: GrammarBackend, vocabulary: Vocabulary, sampler: Sampler) -> None:
    assert reply(xgrammar, vocabulary, sampler, GrammarSpec("regex", "[0-9]{3}")).isdigit()
    assert reply(xgrammar, vocabulary, sampler, GrammarSpec("ebnf", 'root ::= "yes" | "no"')) in ("yes", "no")


@pytest.mark.parametrize(
    ("kind", "source"), [("ebnf", "root ::= ("), ("regex", "["), ("json", "{"), ("structural_tag", "{}")]
)
def test_what_does_not_compile_says_why(xgrammar: GrammarBackend, kind: Any, source: str) -> None:
    with pytest.raises(GrammarError):
        xgrammar.compile(GrammarSpec(kind, source))
