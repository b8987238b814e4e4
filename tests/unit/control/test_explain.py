import json

import orjson
import pytest

from gateway.control.assembly import build_router
from gateway.control.classifier import build_classifier
from gateway.control.config import load_config, parse_config
from gateway.control.explain import Asked, Explanation, explain, explain_in_turns
from gateway.control.shipped import shipped_file
from gateway.routing.router import Router

EMBEDDED = load_config(shipped_file("embedded.yaml"))
CLASSIFIER = build_classifier(EMBEDDED)


@pytest.fixture(scope="module")
def embedded() -> Router:
    return build_router(EMBEDDED, available=True)


def explained(router: Router, body: object, path: str = "/v1/chat/completions") -> Explanation:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return explain(router, CLASSIFIER, EMBEDDED.hookcost, Asked(path, raw))


HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def chat(**parameters: object) -> dict[str, object]:
    return HELLO | parameters


@pytest.mark.parametrize(
    ("body", "path", "pool", "route"),
    [
        (chat(), "/v1/chat/completions", "interactive", "default"),
        (chat(stream=True, temperature=0.5), "/v1/chat/completions", "interactive", "default"),
        (chat(logprobs=True, top_logprobs=5), "/v1/chat/completions", "interactive", "default"),
        (
            chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}),
            "/v1/chat/completions",
            "grammar",
            "structured",
        ),
        (chat(response_format={"type": "json_object"}), "/v1/chat/completions", "grammar", "structured"),
        (chat(regex="a+b"), "/v1/chat/completions", "quarantine", "raw-grammar"),
        (chat(ebnf='root ::= "a"'), "/v1/chat/completions", "quarantine", "raw-grammar"),
        (chat(stop_regex=["x+y"]), "/v1/chat/completions", "quarantine", "stop-regex"),
        (chat(custom_logit_processor="code"), "/v1/chat/completions", "quarantine", "logit-processor"),
        ({"prompt": "x", "prompt_logprobs": 1}, "/v1/completions", "quarantine", "prompt-logprobs"),
        (
            {"text": "x", "return_logprob": True, "logprob_start_len": 0},
            "/generate",
            "quarantine",
            "prompt-logprobs",
        ),
        ({"prompt": "x", "logprobs": 100}, "/v1/completions", "quarantine", "many-logprobs"),
        ({"input": "x"}, "/v1/embeddings", "interactive", "default"),
        (b"", "/v1/models", "interactive", "default"),
    ],
)
def test_the_embedded_rules_send_each_kind_of_request_where_its_cost_belongs(
    embedded: Router, body: object, path: str, pool: str, route: str
) -> None:
    explanation = explained(embedded, body, path)

    assert (explanation["pool"], explanation["route"]) == (pool, route)
    assert explanation["refusal"] is None
    assert explanation["rejection"] is None


def test_an_explanation_is_one_json_object_with_what_the_decision_rests_on(embedded: Router) -> None:
    explanation = explained(embedded, chat(regex="a+b", top_logprobs=3, logprobs=True))

    plain = json.loads(orjson.dumps(explanation))
    assert plain["signature"].startswith("s1-")
    assert plain["grammar_key"].startswith("g1-")
    assert plain["cost"]["step_us"] == pytest.approx(sum(plain["cost"]["by_hook"].values()))
    assert plain["cost"]["compile_ms"] >= 0
    assert plain["features"]["grammar"] == "regex"
    assert plain["features"]["top_logprobs"] == 3
    assert plain["why"] == "rule 'raw-grammar' takes it: grammar is regex (the rule wants grammar: [ebnf, regex])"
    assert [rule["rule"] for rule in plain["rules"]] == ["heavy", "raw-grammar"]
    assert plain["rules"][-1] == {
        "rule": "raw-grammar",
        "pool": "quarantine",
        "matched": True,
        "conditions": [{"key": "grammar", "wanted": ["ebnf", "regex"], "actual": "regex", "holds": True}],
    }


DEAR = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^.{1,255}$"},
        "meta": {"type": "object", "properties": {"alpha": {}, "beta": {}}, "additionalProperties": True},
        "mail": {"type": "string", "format": "email"},
        "link": {"type": "string", "format": "uri-template"},
        "count": {"type": "integer"},
    },
}


def test_it_says_what_each_part_adds_and_where_the_dearest_stand(embedded: Router) -> None:
    explanation = explained(embedded, chat(guided_json=DEAR, stop=["x"], n=2))

    assert explanation["backend"]["name"] == EMBEDDED.hookcost.grammar_backend
    assert len(explanation["places"]) == 3
    assert explanation["places"][0].keys() == {"param", "pointer", "mechanism", "compile_ms", "step_us", "advice"}
    assert explanation["places"][0]["pointer"].startswith("/properties/")
    for key in ("compile_ms", "step_us"):
        parts = sum(each[key] for each in explanation["contributions"])
        assert parts == pytest.approx(explanation["cost"][key])


def test_the_backend_that_counts_is_the_one_that_is_explained() -> None:
    head = "default_pool: a\npools: {a: {replicas: [http://h:1]}}\n"
    for hookcost, dearest in [
        ("{grammar_backend: xgrammar}", "counted_class"),
        ("{grammar_backend: xgrammar, grammar_backend_version: 0.2.7}", "counted_class"),
        ("{grammar_backend: llguidance}", "pattern_width"),
    ]:
        config = parse_config(f"{head}hookcost: {hookcost}\n")
        body = json.dumps(chat(guided_json=DEAR)).encode()
        router = build_router(config, available=True)
        found = explain(router, build_classifier(config), config.hookcost, Asked("/v1/chat/completions", body))
        assert found["backend"]["name"] == config.hookcost.grammar_backend
        assert found["backend"]["version"] == (config.hookcost.grammar_backend_version or found["backend"]["version"])
        assert found["contributions"][0]["name"] == dearest
        assert sum(each["step_us"] for each in found["contributions"]) == pytest.approx(found["cost"]["step_us"])


def test_a_long_body_is_explained_in_many_turns_with_the_same_outcome(embedded: Router) -> None:
    properties = {f"name_{i}": {"type": "string", "pattern": f"^[a-z]{{1,{i + 1}}}$"} for i in range(900)}
    body = {"messages": [{"content": "x" * 300_000}], "guided_json": {"type": "object", "properties": properties}}
    raw = json.dumps(body).encode()
    turns = explain_in_turns(embedded, CLASSIFIER, EMBEDDED.hookcost, Asked("/v1/chat/completions", raw))
    assert sum(1 for _ in turns) > 50
    assert explained(embedded, body)["places"]


def test_a_body_that_would_be_refused_says_so_and_goes_nowhere(embedded: Router) -> None:
    explanation = explained(embedded, b'{"messages": ')

    assert (explanation["pool"], explanation["route"]) == (None, None)
    assert explanation["refusal"]["status"] == 400
    assert explanation["refusal"]["code"] == "invalid_json"
    assert explanation["why"].startswith("refused with 400: ")
    assert explanation["rules"] == []
    assert (explanation["contributions"], explanation["places"]) == ([], [])


def test_a_path_with_a_query_is_decided_by_the_path_alone(embedded: Router) -> None:
    assert explained(embedded, chat(regex="a"), "/v1/chat/completions?x=1")["route"] == "raw-grammar"


def test_what_no_rule_took_and_what_several_conditions_took_are_told_apart() -> None:
    config = parse_config("""
default_pool: a
pools: {a: {replicas: [http://h:1]}, b: {replicas: [http://h:2]}}
rules:
  - {name: both, when: {stream: true, model: [m, n], max_tokens: "<9", heavy: false}, pool: b}
""")
    router = build_router(config, available=True)

    assert explained(router, chat())["why"] == "rule 'default' takes what no rule before it took"
    assert explained(router, chat(stream=True, max_tokens=5))["why"] == (
        "rule 'both' takes it: stream is true and model is m and max_tokens is 5 and heavy is false "
        "(the rule wants stream: true, model: [m, n], max_tokens: <9, heavy: false)"
    )


def test_it_tells_where_requests_go_while_their_pool_is_full() -> None:
    config = parse_config("""
default_pool: a
pools:
  a: {replicas: [http://h:1], step_budget_us: 9, when_full: {spill: b}}
  b: {replicas: [http://h:2], step_budget_us: 9, when_full: {spill: c}}
  c: {replicas: [http://h:3]}
rules:
  - {name: last, when: {stream: true}, pool: c}
""")
    router = build_router(config, available=True)

    assert explained(router, chat())["when_full"] == ["b", "c"]
    assert explained(router, chat(stream=True))["when_full"] == []


def test_it_leaves_out_pools_that_would_not_take_it_when_its_own_is_full() -> None:
    config = parse_config("""
default_pool: a
pools:
  a: {replicas: [http://h:1], step_budget_us: 9, when_full: {spill: b}}
  b: {replicas: [http://h:2], step_budget_us: 9, capabilities: {logprobs: false}, when_full: {spill: c}}
  c: {replicas: [http://h:3], grammar_backend: llguidance}
""")
    router = build_router(config, available=True)

    assert explained(router, chat())["when_full"] == ["b", "c"]
    assert explained(router, chat(logprobs=True, top_logprobs=5))["when_full"] == ["c"]
    assert explained(router, chat(response_format={"type": "json_object"}))["when_full"] == ["b"]


def test_with_replicas_down_it_tells_the_spill_and_the_rejection() -> None:
    config = parse_config("""
default_pool: a
pools:
  a: {replicas: [http://h:1], when_unavailable: {spill: b}}
  b: {replicas: [http://h:2], when_unavailable: {reject: {retry_after_s: 3}}}
""")
    router = build_router(config, available=True)

    router.pools["a"].replicas[0].set_healthy(False)
    spilled = explained(router, chat())
    router.pools["b"].replicas[0].set_healthy(False)
    rejected = explained(router, chat())

    assert (spilled["pool"], spilled["spilled_from"]) == ("b", "a")
    assert spilled["why"].endswith("; pool 'a' has no available replica")
    assert (rejected["pool"], rejected["route"]) == (None, "default")
    assert rejected["rejection"] == {
        "status": 503,
        "code": "pool_unavailable",
        "message": "no replica of pool 'a' is available, nor of 'b' that would stand in for it",
        "retry_after_s": 3,
        "param": None,
    }
    assert "rejected with 503" in rejected["why"]
