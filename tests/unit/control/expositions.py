"""A strict reader of Prometheus' text format, of our own: what prometheus_client's passes over, this one refuses.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import math
import re
from dataclasses import dataclass, field

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """One metric. `samples`: by name and sorted labels."""

    name: str
    help: str
    type: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def read(text: str) -> dict[str, Family]:
    """The families of an exposition, by name. Raises AssertionError for what is not as it must be."""
    assert text.endswith("\n"), "the last line has no end"
    families: dict[str, Family] = {}
    family: Family | None = None
    for line in text.split("\n")[:-1]:
        assert line, "an empty line"
        assert line == line.strip(), f"space around: {line!r}"
        if line.startswith("# HELP "):
            name, _, said = line.removeprefix("# HELP ").partition(" ")
            assert name not in families, f"{name} comes twice"
            assert said, f"{name} has no help"
            assert not re.search(r"\\(?![\\n])", said), f"{name}: bad escape in its help"
            family = families[name] = Family(name, said)
        elif line.startswith("# TYPE "):
            name, _, kind = line.removeprefix("# TYPE ").partition(" ")
            assert family is not None, f"{name}: its type does not follow its help"
            assert family.name == name, f"{name}: its type does not follow its help"
            assert not family.type, f"{name} has two types"
            assert kind in _SUFFIXES, f"{name}: unknown type {kind}"
            family.type = kind
        else:
            assert family is not None, f"a sample of nothing: {line!r}"
            assert family.type, f"a sample without a type: {line!r}"
            name, labels, value = _sample(line)
            assert name in [family.name + suffix for suffix in _SUFFIXES[family.type]], (
                f"{name} is not of {family.name}"
            )
            assert (name, labels) not in family.samples, f"{line!r} comes twice"
            family.samples[name, labels] = value
    for each in families.values():
        _check(each)
    return families


def _sample(line: str) -> tuple[str, Labels, float]:
    found = _NAME.match(line)
    assert found, f"no name: {line!r}"
    at, labels = found.end(), []
    if line[at] == "{":
        at += 1
        while line[at] != "}":
            label = _LABEL.match(line, at)
            assert label, f"no label at {at}: {line!r}"
            labels.append((label[1], re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), label[2])))
            at = label.end()
            if line[at] == ",":
                at += 1
        at += 1
    names = [name for name, _ in labels]
    assert len(set(names)) == len(names), f"a label comes twice: {line!r}"
    assert not any(name.startswith("__") for name in names), f"a reserved label: {line!r}"
    assert line[at] == " ", f"no space before the value: {line!r}"
    return found[0], tuple(sorted(labels)), float(line[at + 1 :])


def _check(family: Family) -> None:
    if family.type == "counter":
        assert family.name.endswith("_total"), f"{family.name} is a counter without _total"
        assert all(value >= 0 for value in family.samples.values())
    if family.type != "histogram":
        return
    rows: dict[Labels, list[tuple[float, float]]] = {}
    for (name, labels), value in family.samples.items():
        if name.endswith("_bucket"):
            bound = float(dict(labels)["le"])
            rows.setdefault(tuple(each for each in labels if each[0] != "le"), []).append((bound, value))
    for labels, buckets in rows.items():
        assert buckets == sorted(buckets), f"{family.name}: buckets out of order"
        assert [count for _, count in buckets] == sorted(count for _, count in buckets), f"{family.name}: counts shrink"
        assert math.isinf(buckets[-1][0]), f"{family.name} has no last bucket"
        assert family.samples[f"{family.name}_count", labels] == buckets[-1][1]
        assert (f"{family.name}_sum", labels) in family.samples
