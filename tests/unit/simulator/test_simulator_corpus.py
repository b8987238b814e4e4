"""Structured output over real schemas: a sample of the shared corpus, where it is there to read."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from replica.simulator.grammar import GrammarError

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "data" / "schemas.jsonl.gz"
SAMPLE = 80


@pytest.mark.skipif(not CORPUS.exists(), reason=f"the corpus of real schemas is not at {CORPUS}")
def test_replies_to_real_schemas_validate_and_nearly_all_close(generate: Callable[..., str]) -> None:
    with gzip.open(CORPUS) as lines:
        rows = random.Random(5).sample([json.loads(line) for line in lines], SAMPLE)
    outcome: Counter[str] = Counter()
    for row in rows:
        schema = row["schema"]
        try:
            value = json.loads(generate("json", schema, max_new_tokens=600))
        except GrammarError as error:
            outcome["open" if "not closed" in str(error) else "refused"] += 1
            continue
        jsonschema.validators.validator_for(schema)(schema).validate(value)
        outcome["valid"] += 1
    # llguidance refuses a sixth of the corpus; what stays open are documents that must be long.
    assert outcome["valid"] > 0.7 * SAMPLE, outcome
    assert outcome["open"] < 0.05 * SAMPLE, outcome
