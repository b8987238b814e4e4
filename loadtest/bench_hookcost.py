"""What classifying costs the gateway: plain requests, schemas seen and unseen, throughput, growth, and the longest
turn.

In one process, in CPU time. `make bench-hookcost` prints a table; where the measured corpus stands beside the
repository its schemas are used, else made-up ones of the same sizes.
"""

import gzip
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import yaml

from gateway.control.shipped import shipped_file
from gateway.hookcost import Classification, Classifier, Grammar, llguidance, refusal, xgrammar
from gateway.hookcost.constraint import Constraint, canonical
from gateway.hookcost.grammarcost import GrammarPricer
from gateway.hookcost.policy import Policy
from gateway.hookcost.prices import CostModel, cost_model_from
from loadtest.hostile_bodies import HOSTILE

CHAT = "/v1/chat/completions"
CORPUS = Path(__file__).resolve().parents[2] / "shared" / "data" / "schemas.jsonl.gz"
SAMPLE = 1500
ROUNDS = 5
LONGEST_TURNS = 25
BACKENDS = (("xgrammar", None),)


def cpu_us(work: Callable[[], object], times: int) -> float:
    """CPU microseconds of one call, the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(times):
            work()
        best = min(best, (time.process_time() - start) / times * 1e6)
    return best


def chat(**fields: Any) -> bytes:
    return orjson.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "Hello there, who are you?"}], **fields}
    )


def asking(schema: object) -> bytes:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}})


def classify_afresh(classifier: Callable[[], Classifier], body: bytes) -> Classification:
    """Classifies with empty caches."""
    return classifier().classify(CHAT, body)


def object_of(properties: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"field_{i}": {"type": "string", "description": "what it holds"} for i in range(properties)},
        "required": [f"field_{i}" for i in range(0, properties, 2)],
        "additionalProperties": False,
    }


def corpus() -> tuple[str, list[object]]:
    """Schemas to analyse, with a word on where they are from."""
    if CORPUS.is_file():
        with gzip.open(CORPUS, "rb") as lines:
            rows = [orjson.loads(line) for line in lines]
        return f"{SAMPLE} real schemas", [row["schema"] for row in rows[:: max(1, len(rows) // SAMPLE)]]
    return "made-up schemas", [object_of(n) for n in (3, 5, 8, 10, 12, 20, 30, 50, 100, 300) for _ in range(20)]


def analysis(model: CostModel, schemas: list[object]) -> tuple[list[float], float]:
    """CPU microseconds of reading and pricing each schema for the first time, sorted, and MB/s over all of them."""
    pricer = GrammarPricer(tuple(model.backend(*each) for each in BACKENDS), model.vocabulary, Policy())
    times: list[float] = []
    size = 0
    for schema in schemas:
        constraint = Constraint(Grammar.json_schema, schema, "schema")
        text = canonical(constraint)
        best = float("inf")
        for _ in range(3):
            xgrammar.pattern_bill.cache_clear()
            start = time.process_time()
            for _ in pricer.price(constraint, text, 1 << 30):
                pass
            best = min(best, (time.process_time() - start) * 1e6)
        times.append(best)
        size += len(text)
    return sorted(times), size / sum(times)


def turns_of(classifier: Classifier, path: str, body: bytes) -> list[float]:
    """CPU milliseconds of each turn of one classification."""
    for cache in (xgrammar.pattern_bill, llguidance.pattern_bill, refusal.judged):
        cache.cache_clear()
    start = time.thread_time()
    begun = classifier.begin(path, body)
    turns = [(time.thread_time() - start) * 1e3]
    while not isinstance(begun, Classification):
        start = time.thread_time()
        try:
            next(begun)
        except StopIteration as done:
            begun = done.value
        turns.append((time.thread_time() - start) * 1e3)
    return turns


def longest_turn(model: CostModel, backend: str, path: str, body: bytes) -> tuple[float, int, float]:
    """Milliseconds of the longest turn of a body never seen, the number of turns, and milliseconds of all of them.

    Of each turn the best of several counts: what the machine adds to one of them is none of ours.
    """
    rounds = [turns_of(Classifier(model, backends=((backend, None),)), path, body) for _ in range(ROUNDS)]
    best = [min(times) for times in zip(*rounds, strict=True)]
    return max(best), len(best), sum(best)


def print_longest_turns(model: CostModel) -> None:
    """A table of hostile bodies, the longest turn first."""
    rows = []
    for name, (path, make) in HOSTILE.items():
        body = make()
        longest, turns, whole = max(longest_turn(model, backend, path, body) for backend in ("xgrammar", "llguidance"))
        rows.append((longest, name, len(body), turns, whole))
    title = f"the {LONGEST_TURNS} longest turns of {len(rows)} hostile bodies"
    print(f"\n| {title:48} |     KiB | turns | CPU ms | longest turn ms |")
    for longest, name, size, turns, whole in sorted(rows, reverse=True)[:LONGEST_TURNS]:
        print(f"| {name:48} | {size / 1024:7,.0f} | {turns:5} | {whole:6.1f} | {longest:15.2f} |")


def main() -> None:
    """Measures and prints."""
    model = cost_model_from(yaml.safe_load(shipped_file("cost_model.yaml").read_text(encoding="utf-8")))

    def fresh() -> Classifier:
        return Classifier(model, backends=BACKENDS)

    classifier = fresh()
    plain, ten = chat(), asking(object_of(10))
    rows = [
        ("plain chat request", f"{cpu_us(lambda: classifier.classify(CHAT, plain), 5000):.1f} µs"),
        ("the same, only parsed", f"{cpu_us(lambda: orjson.loads(plain), 5000):.1f} µs"),
        (
            "with a schema of 10 properties, seen before",
            f"{cpu_us(lambda: classifier.classify(CHAT, ten), 3000):.1f} µs",
        ),
        ("the same, only parsed", f"{cpu_us(lambda: orjson.loads(ten), 5000):.1f} µs"),
    ]
    schema = object_of(10)
    rows.append(("look-up of a schema seen before", f"{cpu_us(lambda: {orjson.dumps(schema): 1}, 5000):.1f} µs"))
    source, schemas = corpus()
    times, rate = analysis(model, schemas)
    points = [times[int(len(times) * share)] for share in (0.5, 0.9, 0.99)]
    rows.append(
        (
            f"analysis of an unseen schema, p50 / p90 / p99 of {source}",
            " / ".join(f"{point:.0f}" for point in points) + " µs",
        )
    )
    rows.append(("analysis of all of them", f"{rate:.1f} MB/s"))
    growth = []
    for properties in (10, 100, 900):
        body = asking(object_of(properties))
        spent = cpu_us(partial(classify_afresh, fresh, body), 3)
        growth.append(f"{spent / len(body) * 1024:.0f}")
    rows.append(("growth: µs per KiB at 1, 7 and 70 KiB", " / ".join(growth)))
    conversation = orjson.dumps({"messages": [{"content": 'some "quoted" text\n' * 50}] * 1000})
    for name, body in (("1 MiB of conversation", conversation), ("900 properties", asking(object_of(900)))):
        longest, turns, _ = longest_turn(model, "xgrammar", CHAT, body)
        rows.append((f"longest turn of {turns} for {name}", f"{longest:.2f} ms"))
    width = max(len(name) for name, _ in rows)
    for name, figure in rows:
        print(f"| {name.ljust(width)} | {figure.rjust(22)} |")
    print_longest_turns(model)


if __name__ == "__main__":
    main()
