"""All requests of one slice, made before the first is sent: so that making them delays none."""

import random
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from loadtest.traffic.arrivals import Arrival, arrivals
from loadtest.traffic.kinds import COMPLETIONS, KINDS, Choice
from loadtest.traffic.lengths import draw
from loadtest.traffic.scenario import Scenario, TrafficClass
from loadtest.traffic.schemas import Schema

_COMMON = (
    "all about and any been by can come could day do even find first for from get give go have here how in into know "
    "like look make many may more most new now of on one only other our out over people say see so some take than that "
    "the their them then there these they thing think this time to two up use very want way well what when which who "
    "will with work would year you"
)
_WORDS = _COMMON.split()
RID_SEPARATOR = "~"


@dataclass(frozen=True, slots=True)
class Planned:
    """One request: seconds after the beginning at which it is due, its class, where it is asked, and its body."""

    due_s: float
    kind: str
    path: str
    body: bytes
    schema: Schema | None
    measured: bool


def plan(scenario: Scenario, phase: str, turn: str) -> list[Planned]:
    """The requests of one slice in order of time.

    A class asks for the same at the same moments in every phase and at every target: kinds, lengths, and which of the
    schemas that are asked for again and again. But prompts, and schemas that are to be new to an engine, are new in
    every slice: else the engines would know from one gateway what the next one asks. `turn`: ROUND/TARGET.
    """
    planned: list[Planned] = []
    for name in scenario.classes_of(phase):
        planned += _of_class(scenario, name, turn, phase)
    return sorted(planned, key=lambda each: each.due_s)


def class_of(rid: str) -> str:
    """The class that a request id of ours says; empty for others."""
    name, separator, _ = rid.partition(RID_SEPARATOR)
    return name if separator else ""


def _of_class(scenario: Scenario, name: str, turn: str, phase: str) -> list[Planned]:
    each = scenario.classes[name]
    chance = random.Random(f"{scenario.seed} {name} {turn.partition('/')[0]}")
    fresh = random.Random(f"{scenario.seed} {name} {phase} {turn}")
    until_s = scenario.warm_s + scenario.duration_s
    moments = list(arrivals(each.arrivals, scenario.rate_of(name), until_s, chance))
    asked = KINDS[each.kind](Choice(each.count, each.folder, each.zipf, fresh), chance)
    planned = []
    for number, (arrival, more) in enumerate(zip(moments, islice(asked, len(moments)), strict=True)):
        path = more.path or scenario.path
        body = _body(scenario, each, arrival, path, chance, fresh) | more.fields | each.body
        if scenario.request_ids:
            body["rid"] = f"{name}{RID_SEPARATOR}{phase}-{turn}-{number}"
        planned.append(
            Planned(arrival.at_s, name, path, orjson.dumps(body), more.schema, arrival.at_s >= scenario.warm_s)
        )
    return planned


def _body(
    scenario: Scenario, each: TrafficClass, arrival: Arrival, path: str, chance: random.Random, fresh: random.Random
) -> dict[str, Any]:
    prompt = arrival.prompt_tokens or draw(each.prompt_tokens, chance)
    output = arrival.output_tokens or draw(each.output_tokens, chance)
    content = " ".join(fresh.choices(_WORDS, k=prompt))
    asked = {"prompt": content} if path == COMPLETIONS else {"messages": [{"role": "user", "content": content}]}
    return {
        "model": scenario.model,
        **asked,
        "max_tokens": output,
        "temperature": 0,
        "stream": each.stream,
    }
