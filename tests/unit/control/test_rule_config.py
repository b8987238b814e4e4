"""Rules in the YAML: what may be said, what is refused with its line, and which rules can't be reached."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gateway.control.actionconfig import CapConfig, RefuseConfig, ShadowConfig
from gateway.control.assembly import build_router
from gateway.control.config import Config, parse_config
from gateway.control.part import Part
from gateway.control.problem import ConfigError
from gateway.control.ruleconfig import RuleConfig, ScheduleConfig
from gateway.control.secrets import shown_config
from gateway.control.whenschema import when_schema
from gateway.hookcost import Classification, Features, Grammar, HookCost
from gateway.routing.request import RouteRequest
from gateway.routing.rule import Rule
from gateway.routing.variables import VARIABLES

POOLS = """
default_pool: a
pools:
  a: {replicas: [http://h:1]}
  b: {replicas: [http://h:2], when_unavailable: {spill: d}}
  c: {replicas: [http://h:3]}
  d: {replicas: [http://h:4], when_unavailable: {reject: {retry_after_s: 9}}}
  spare: {replicas: [http://h:5], api_key: secret}
"""


def parsed(rules: str) -> Config:
    return parse_config(POOLS + "rules:\n" + textwrap.indent(textwrap.dedent(rules).strip("\n"), "  "))


def rule(text: str) -> Rule:
    return parsed(text).rules[0].compiled()


def problems(rules: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parsed(rules)
    return "\n".join(map(str, refused.value.problems))


def test_everything_that_a_rule_may_say_is_understood() -> None:
    found = rule("""
- name: r
  when: {grammar: any, headers: {x-tier: gold*}, query: {debug: "1"}, cel: "n > 1"}
  schedule: {days: [mon-fri, sun], from: "08:00", to: "18:30", timezone: Europe/Berlin}
  weight: 12.5
  sticky: X-User
  pool: a
  fallbacks: [c, b]
  set_headers: {X-Team: search}
  strip_headers: [Cookie]
  response_headers: {x-served: "yes"}
  cap: {max_tokens: {most: 1024, default: 256}, top_logprobs: 5, n: 4}
  strip: [logit_bias]
  shadow: {pool: spare, share: 0.1}
""")
    actions = found.actions
    assert [condition.key for condition in found.conditions] == [
        *("grammar", "headers.x-tier", "query.debug", "schedule", "cel", "weight")
    ]
    assert found.fallbacks == ("c", "b")
    assert actions is not None
    assert actions.set_headers == (("x-team", "search"),)
    assert actions.strip_headers == ("cookie",)
    assert [(cap.name, cap.most, cap.default) for cap in actions.caps] == [
        ("max_tokens", 1024, 256),
        ("top_logprobs", 5, None),
        ("n", 4, None),
    ]
    assert actions.shadow is not None
    assert (actions.shadow.pool, actions.shadow.share, actions.shadow.max_running) == ("spare", 0.1, 16)


def test_a_plain_rule_has_no_actions() -> None:
    assert rule("- {name: r, when: {stream: true}, pool: a}").actions is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "- {name: r, pool: a, reject: {}}",
            "10:5: rules[0]: expected a rule with `pool`, with `cheapest_backend`, or with `reject`",
        ),
        ("- {name: r}", "expected a rule with `pool`, with `cheapest_backend`, or with `reject`"),
        ("- {name: r, reject: {}, strip: [n]}", "nothing that is done on the way to a pool"),
        ("- {name: r, pool: x}", "rules[0].pool: expected one of the pools a, b, c, d, spare, found 'x'"),
        ("- {name: r, pool: a, fallbacks: [x]}", "rules[0].fallbacks[0]: expected one of the pools"),
        ("- {name: r, pool: a, fallbacks: [c, a]}", "rules[0].fallbacks[1]: expected each pool once, found 'a'"),
        ("- {name: r, pool: a, shadow: {pool: a}}", "rules[0].shadow.pool: expected another pool"),
        ("- {name: r, pool: a, shadow: {pool: x}}", "rules[0].shadow.pool: expected one of the pools"),
        ("- {name: r, pool: a, weight: 101}", "rules[0].weight: expected a number of at most 100"),
        ("- {name: r, pool: a, sticky: tenant}", "rules[0].sticky: expected a weight below 100 beside it"),
        ("- {name: r, pool: a, weight: 5, sticky: 'a b'}", "expected `tenant`, or the name of a header"),
        ("- {name: default, pool: a, weight: 5}", "expected another name for a rule with conditions"),
        ("- {name: r, pool: a, when: [1]}", "expected a mapping of conditions, or an expression in CEL"),
        ("- {name: r, pool: a, when: {headers: x}}", "rules[0].when.headers: expected a mapping of names to texts"),
        ("- {name: r, pool: a, when: {headers: {x: 5}}}", "10:44: rules[0].when.headers.x: expected text"),
        ("- {name: r, pool: a, when: {headers: {Host: x}}}", "expected a header that a client may choose freely"),
        ("- {name: r, pool: a, when: {headers: {x-steplane-y: x}}}", "expected a header that a client may choose"),
        ("- {name: r, pool: a, when: {headers: {'a b': x}}}", "expected the name of a header, found 'a b'"),
        ("- {name: r, pool: a, when: {query: {'a&b': x}}}", "expected the name of a parameter"),
        (
            "- {name: r, pool: a, when: 'n >'}",
            "10:30: rules[0].when: expected a value, found the end (at line 1, column",
        ),
        (
            "- {name: r, pool: a, when: {cel: 'modle == 1'}}",
            "10:36: rules[0].when.cel: expected a variable of a",
        ),
        ("- {name: r, pool: a, when: {cel: 5}}", "expected an expression in CEL, found 5"),
        ("- {name: r, pool: a, schedule: {from: '8:00'}}", 'expected a time from "00:00" to "24:00", in quotes'),
        ("- {name: r, pool: a, schedule: {from: 08:00, to: 25:00}}", "rules[0].schedule.to: expected a time"),
        ("- {name: r, pool: a, schedule: {days: [monday]}}", "expected days of mon, tue"),
        ("- {name: r, pool: a, schedule: {timezone: Europe/Bonn}}", "expected a time zone, as in UTC"),
        ("- {name: r, pool: a, set_headers: {content-length: '5'}}", "content-length is the gateway's own"),
        ("- {name: r, pool: a, set_headers: {x-steplane-rid: a}}", "expected a header that may be changed"),
        ("- {name: r, pool: a, set_headers: {x: 5}}", "expected text on one line for the header x"),
        ('- {name: r, pool: a, set_headers: {x: "a\\nb"}}', "expected text on one line for the header x"),
        ("- {name: r, pool: a, response_headers: {content-type: a}}", "expected a header that may be changed"),
        ("- {name: r, pool: a, strip_headers: [host]}", "expected a header that may be changed"),
        ("- {name: r, pool: a, strip: [messages]}", "without messages it would be another request"),
        ("- {name: r, pool: a, strip: ['a b']}", "expected the name of a field of the body"),
        ("- {name: r, pool: a, cap: {max_tokens: {most: 5, default: 6}}}", "expected a default of at most `most`"),
        ("- {name: r, pool: a, cap: {max_tokens: 0}}", "expected a number of at least 1"),
        ("- {name: r, pool: a, cap: {temperature: 1}}", "expected one of max_tokens, top_logprobs"),
        ("- {name: r, reject: {status: 200}}", "rules[0].reject.status: expected a number of at least 400"),
        ("- {name: r, pool: spare, set_headers: {authorization: x}}", "pool 'spare' has an api_key"),
    ],
)
def test_a_mistake_in_a_rule_is_named_with_its_place(text: str, said: str) -> None:
    assert said in problems(text)


@pytest.mark.parametrize(
    ("first", "second", "covered"),
    [
        ("when: {grammar: any}", "when: {grammar: ebnf}", True),
        ("when: {grammar: ebnf}", "when: {grammar: any}", False),
        ("when: {grammar: any}", "when: {grammar: [ebnf, none]}", False),
        ("when: {grammar: any}", "when: {grammar: ebnf, stream: true}", True),
        ("when: {grammar: any, stream: true}", "when: {grammar: ebnf}", False),
        ("when: {step_us: '>100'}", "when: {step_us: '>200'}", True),
        ("when: {step_us: '>100'}", "when: {step_us: '>=100'}", False),
        ("when: {step_us: '>=100'}", "when: {step_us: '100..200'}", True),
        ("when: {step_us: ['<50', '>100']}", "when: {step_us: '>200'}", True),
        ("when: {step_us: '!=5'}", "when: {step_us: '<5'}", True),
        ("when: {tools: true}", "when: {tools: '>3'}", True),
        ("when: {tools: false}", "when: {tools: 0}", True),
        ("when: {max_tokens: true}", "when: {max_tokens: '>3'}", True),
        ("when: {max_tokens: false}", "when: {max_tokens: false, stream: true}", True),
        ("when: {max_tokens: '>0'}", "when: {max_tokens: true}", False),
        ("when: {model: qwen*}", "when: {model: qwen3-8b}", True),
        ("when: {model: qwen*}", "when: {model: 'qwen*'}", True),
        ("when: {model: qwen*}", "when: {model: 'q*'}", False),
        ("when: {model: [a, b]}", "when: {model: b}", True),
        ("when: {headers: {x: true}}", "when: {headers: {X: gold}}", True),
        ("when: {headers: {x: gold}}", "when: {headers: {y: gold}}", False),
        ("when: 'n > 1'", "when: {cel: 'n > 1', stream: true}", True),
        ("when: 'n > 1'", "when: 'n > 2'", False),
        ("weight: 50", "when: {stream: true}", False),
        ("schedule: {days: [mon]}", "when: {stream: true}", False),
        ("schedule: {days: [mon]}", "{schedule: {days: [mon]}, when: {stream: true}}", True),
        ("when: {stream: true}", "{weight: 5, when: {stream: true}}", True),
    ],
)
def test_a_rule_whose_requests_all_go_to_one_before_it_is_warned_of(first: str, second: str, covered: bool) -> None:
    second = second.removeprefix("{").removesuffix("}") if second.startswith("{") else second
    config = parsed(f"- {{name: one, pool: b, {first}}}\n- {{name: two, pool: c, {second}}}")
    warned = [str(warning) for warning in config.warnings if "rules[1]" in str(warning)]

    assert bool(warned) is covered
    if covered:
        assert "'one' before it takes all that it takes, found 'two' (move it above 'one')" in warned[0]


def decided(config: Config, down: str = "", **what: Any) -> tuple[str | None, str, str | None, int | None]:
    router = build_router(config, available=True)
    for name in down:
        router.pools[name].replicas[0].set_healthy(False)
    request = RouteRequest("POST", "/", Classification(Features(**what), HookCost(), "s1-0"))
    decision = router.decide(request)
    retry = decision.rejection.retry_after_s if decision.rejection else None
    return decision.pool.name if decision.pool else None, decision.rule, decision.spilled_from, retry


@pytest.mark.parametrize(
    ("down", "pool", "spilled_from"),
    [("", "b", None), ("b", "c", "b"), ("bc", "a", "b"), ("abc", "d", "b"), ("abcd", None, None)],
)
def test_fallbacks_come_before_where_the_pool_itself_spills_to(
    down: str, pool: str | None, spilled_from: str | None
) -> None:
    config = parsed("- {name: r, pool: b, fallbacks: [c, a]}")

    found = decided(config, down)

    assert found[:3] == (pool, "r", spilled_from)
    assert found[3] == (None if pool else 9)


def test_a_rule_that_refuses_needs_no_pool() -> None:
    config = parsed("- {name: r, when: {grammar: ebnf}, reject: {status: 422, message: no, retry_after_s: 3}}")

    assert decided(config, grammar=Grammar.ebnf) == (None, "r", None, 3)
    assert decided(config)[0] == "a"


def test_actions_go_with_the_request_to_every_pool_of_its_rule_and_to_quarantine() -> None:
    config = parse_config(
        POOLS
        + "  quarantine: {replicas: [http://h:9]}\nrules: [{name: r, pool: b, fallbacks: [c], cap: {max_tokens: 5}}]"
    )
    router = build_router(config, available=True)
    request = RouteRequest("POST", "/", Classification(Features(), HookCost(), "s1-0"))
    first = router.decide(request)
    router.pools["b"].replicas[0].set_healthy(False)
    second = router.decide(request)

    assert first.actions is not None
    assert first.actions is second.actions is router.quarantined(first, request).actions


def test_the_page_on_rules_names_every_variable_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "rules.md").read_text()
    conditions = page[page.index("## Conditions") : page.index("## Conditions in CEL")]
    words = {
        word for line in conditions.splitlines() if "|" in line for word in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    listed = re.search(r'"at least one": (.*)\.', conditions)
    assert listed is not None
    words |= set(re.findall(r"`(\w+)`", listed[1]))

    assert words == set(VARIABLES)


@pytest.mark.parametrize("part", [RuleConfig, ScheduleConfig, CapConfig, ShadowConfig, RefuseConfig])
def test_the_page_on_rules_names_every_key(part: type[Part]) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "rules.md").read_text()
    keys = {field.alias or name for name, field in part.model_fields.items()}

    assert {key for key in keys if not re.search(rf"\b{key}\b", page)} == set()


def test_what_a_rule_sets_in_headers_is_never_shown() -> None:
    config = parsed("- {name: r, pool: a, set_headers: {authorization: hunter2, x-team: hunter3}}")

    shown = str(shown_config(config, {}))

    assert "authorization" in shown
    assert "hunter" not in shown


@pytest.mark.parametrize(
    ("when", "valid"),
    [
        ("n > 1", True),
        ({"grammar": "any", "step_us": ">300", "n": [1, "4..8"], "stream": True}, True),
        ({"headers": {"x-tier": ["gold*", True]}, "max_tokens": False, "cel": "n > 1"}, True),
        ({}, True),
        ({"gramar": "any"}, False),
        ({"grammar": "regx"}, False),
        ({"stream": "yes"}, False),
        ({"model": 5}, False),
        ({"n": []}, False),
        ({"headers": "gold"}, False),
        (5, False),
    ],
)
def test_editors_know_the_conditions(when: object, valid: bool) -> None:
    schema = RuleConfig.model_json_schema()["properties"]["when"]

    assert jsonschema.Draft202012Validator(schema).is_valid(when) is valid


def test_what_editors_take_for_valid_names_every_condition() -> None:
    conditions = when_schema()["anyOf"][1]["properties"]

    assert conditions.keys() == {*VARIABLES, "cel"}
    assert all(condition["description"] for condition in conditions.values())
