import re
from pathlib import Path

import pytest

from gateway.control.assembly import build_router
from gateway.control.config import Config, ReplicaConfig, load_config, parse_config
from gateway.control.listenconfig import ListenConfig
from gateway.control.network import Address
from gateway.control.problem import ConfigError
from gateway.control.shipped import shipped_file
from gateway.routing.settings import Reject, Spill
from gateway.routing.variables import VARIABLES

SMALLEST = """
default_pool: all
pools:
  all: {replicas: [http://127.0.0.1:30000]}
"""


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_config(text, "f.yaml")
    return [str(problem) for problem in refused.value.problems]


def test_a_pool_and_a_default_are_enough_and_the_rest_has_defaults() -> None:
    config = parse_config(SMALLEST)

    assert config.listen == [ListenConfig(address=Address("127.0.0.1", 8080))]
    assert config.admin.listen == Address("127.0.0.1", 8081)
    assert config.limits.max_body_bytes == 64 * 1024 * 1024
    assert config.timeouts.upstream_idle_s == 4
    assert config.pools["all"].engine == "sglang"
    assert config.pools["all"].health.path == "/health"
    assert config.pools["all"].step_budget_us is None
    assert config.rules == []
    assert config.warnings == ()


@pytest.mark.parametrize("name", ["gateway.yaml", "embedded.yaml"])
def test_the_shipped_configurations_are_valid_without_warnings(name: str) -> None:
    config = load_config(shipped_file(name))

    assert config.warnings == ()
    assert {"interactive", "grammar", "quarantine"} == set(config.pools)


def test_the_example_lists_every_condition_with_what_it_looks_at() -> None:
    text = shipped_file("gateway.yaml").read_text()

    for variable in VARIABLES.values():
        assert re.search(rf"^#   {variable.name} +{re.escape(variable.about)}$", text, re.MULTILINE), variable.name


def test_the_example_shows_every_key_with_its_default_unless_it_says_otherwise() -> None:
    example = load_config(shipped_file("gateway.yaml"))

    assert example.timeouts == parse_config(SMALLEST).timeouts
    assert example.limits == parse_config(SMALLEST).limits
    assert example.admin == parse_config(SMALLEST).admin
    assert example.listen == parse_config(SMALLEST).listen
    assert example.pools["interactive"].health == parse_config(SMALLEST).pools["all"].health


# Each line is one mistake, put into a configuration that is right otherwise; what follows is all that must be said.
@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("listen: 8080", "f.yaml:1:9: listen: expected HOST:PORT, as in 127.0.0.1:8080, found 8080"),
        (
            "listen: ':8080'",
            "f.yaml:1:9: listen: expected HOST:PORT, as in 127.0.0.1:8080, found ':8080' "
            "(0.0.0.0:8080 listens on every interface)",
        ),
        ("listen: 127.0.0.1:99999", "f.yaml:1:9: listen: expected a port from 0 to 65535, found '127.0.0.1:99999'"),
        (
            "admin: {lissen: 127.0.0.1:1}",
            "f.yaml:1:9: admin.lissen: expected one of listen, auth, hosts, found an unknown key "
            "(did you mean listen?)",
        ),
        (
            "admin: {listen: 127.0.0.1:8080}",
            "f.yaml:1:17: admin.listen: expected another address than that of listen, found 127.0.0.1:8080",
        ),
        ("admin:", "f.yaml:1:7: admin: expected a mapping of keys to values, found nothing"),
        (
            "limit: {}",
            f"f.yaml:1:1: limit: expected one of {', '.join(Config.model_fields)}, found an unknown key "
            "(did you mean limits?)",
        ),
        (
            "limits: {max_body_bytes: 64M}",
            "f.yaml:1:26: limits.max_body_bytes: expected a whole number, found '64M'",
        ),
        (
            "limits: {max_body_bytes: 0}",
            "f.yaml:1:26: limits.max_body_bytes: expected a number of at least 1, found 0",
        ),
        ("timeouts: {connect_s: 0}", "f.yaml:1:23: timeouts.connect_s: expected a number above 0, found 0"),
        ("timeouts: {connect_s: true}", "f.yaml:1:23: timeouts.connect_s: expected a number, found true"),
        ("timeouts: [1]", "f.yaml:1:11: timeouts: expected a mapping of keys to values, found a list of 1"),
        ("rules: {a: 1}", "f.yaml:1:8: rules: expected a list, found a mapping with a"),
        (
            "rules: [{pool: all}]",
            "f.yaml:1:9: rules[0].name: expected a value, for this key is required, found nothing",
        ),
        (
            "rules: [{name: a b, pool: all}]",
            "f.yaml:1:16: rules[0].name: expected a name of letters, digits and . _ : - "
            "that begins with a letter or digit, found 'a b'",
        ),
        (
            "rules: [{name: a, pool: al}]",
            "f.yaml:1:25: rules[0].pool: expected one of the pools all, found 'al'",
        ),
        (
            "rules: [{name: a, pool: all, when: {grammar: regx}}]",
            "f.yaml:1:46: rules[0].when.grammar: expected one of none, json_object, json_schema, regex, ebnf, choice, "
            "structural_tag, tools, any, found 'regx' (did you mean regex?)",
        ),
        (
            "rules: [{name: a, pool: all, when: {n: '>x'}}]",
            'f.yaml:1:40: rules[0].when.n: expected 300, ">300", ">=300", "<300", "<=300", "!=300" or "100..300", '
            "found '>x'",
        ),
        (
            "rules: [{name: a, pool: all}, {name: a, pool: all, when: {stream: true}}]",
            "f.yaml:1:38: rules[1].name: expected a name of its own for each rule, found 'a', as in rules[0]",
        ),
        (
            "rules: [{name: default, pool: all, when: {stream: true}}]",
            "f.yaml:1:16: rules[0].name: expected another name for a rule with conditions, found 'default' "
            "(that name is kept for what no other rule takes)",
        ),
        (
            "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2",
            "f.yaml:2:1: listen: expected each key once, found a second one (the first is on line 1)",
        ),
        ("1: 2", "f.yaml:1:1: expected a key that is plain text, found '1' (put the key in quotes: '1')"),
    ],
)
def test_a_mistake_is_named_with_line_key_what_was_expected_and_what_was_found(mistake: str, said: str) -> None:
    assert problems_of(mistake + SMALLEST) == [said]


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("{}", "3:5: pools.all.replicas: expected a value, for this key or discover is required, found nothing"),
        ("{replicas: []}", "3:21: pools.all.replicas: expected at least 1 entry, or discover, found an empty list"),
        (
            "{replicas: [10.0.0.1:30000]}",
            "3:22: pools.all.replicas[0].url: expected a URL such as http://10.0.0.7:30000, with http:// or https://, "
            "found '10.0.0.1:30000' (did you mean http://10.0.0.1:30000?)",
        ),
        (
            "{replicas: [http://h:1/v1]}",
            "3:22: pools.all.replicas[0].url: expected a URL such as http://10.0.0.7:30000, without a path, "
            "found 'http://h:1/v1' (the path of each request is passed on as it is)",
        ),
        (
            "{replicas: [{url: http://h:1, nam: x}]}",
            f"3:40: pools.all.replicas[0].nam: expected one of {', '.join(ReplicaConfig.model_fields)}, found an "
            "unknown key (did you mean name?)",
        ),
        (
            "{replicas: [http://h:1, http://h:1/]}",
            "3:34: pools.all.replicas[1]: expected each replica once, found http://h:1, as in pools.all.replicas[0]",
        ),
        (
            "{replicas: [http://127.0.0.1:8081]}",
            "3:22: pools.all.replicas[0].url: expected the address of an engine, "
            "found http://127.0.0.1:8081, where this gateway has its admin.listen",
        ),
        (
            "{replicas: [{url: http://h:1, name: a}, {url: http://h:2, name: a}]}",
            "3:74: pools.all.replicas[1].name: expected a name of its own for each replica, found 'a', "
            "as in pools.all.replicas[0]",
        ),
        (
            "{replicas: [http://h:1], engine: sglan}",
            "3:43: pools.all.engine: expected 'sglang', 'vllm' or 'other', found 'sglan'",
        ),
        (
            "{replicas: [http://h:1], step_budget_us: -1}",
            "3:51: pools.all.step_budget_us: expected a number above 0, found -1",
        ),
        (
            "{replicas: [http://h:1], when_unavailable: spill}",
            "3:53: pools.all.when_unavailable: expected reject or {spill: POOL}, found 'spill'",
        ),
        (
            "{replicas: [http://h:1], when_unavailable: {spil: x}}",
            "3:54: pools.all.when_unavailable.spil: expected one of reject, spill, found an unknown key "
            "(did you mean spill?)",
        ),
        (
            "{replicas: [http://h:1], when_unavailable: {reject: {retry_after_s: 0}}}",
            "3:78: pools.all.when_unavailable.reject.retry_after_s: expected a number of at least 1, found 0",
        ),
        (
            "{replicas: [http://h:1], when_unavailable: {spill: grammar}}",
            "3:61: pools.all.when_unavailable.spill: expected one of the pools all, found 'grammar'",
        ),
        (
            "{replicas: [http://h:1], when_unavailable: {spill: all}}",
            "3:61: pools.all.when_unavailable.spill: expected a pool that does not lead back, found all → all "
            "(let the last pool reject)",
        ),
        (
            "{replicas: [http://h:1], when_full: reject}",
            "3:46: pools.all.when_full: expected wait or {spill: POOL}, found 'reject'",
        ),
        (
            "{replicas: [http://h:1], when_full: {spill: grammar}}",
            "3:54: pools.all.when_full.spill: expected one of the pools all, found 'grammar'",
        ),
        (
            "{replicas: [http://h:1], when_full: {spill: all}}",
            "3:54: pools.all.when_full.spill: expected a pool that does not lead back, found all → all "
            "(let the last pool wait)",
        ),
        (
            "{replicas: [http://h:1], health: {path: health}}",
            "3:50: pools.all.health.path: expected a path that begins with / and holds no space, found 'health'",
        ),
        (
            "{replicas: [http://h:1], health: {eject_after: 2.5}}",
            "3:57: pools.all.health.eject_after: expected a whole number, found 2.5",
        ),
    ],
)
def test_a_mistake_in_a_pool_is_named_too(pool: str, said: str) -> None:
    assert problems_of(f"default_pool: all\npools:\n    all: {pool}") == [f"f.yaml:{said}"]


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = """\
listen: nowhere
pools:
  a: {replicas: [x], engine: y}
rules: 3
"""
    lines = [int(problem.split(":")[1]) for problem in problems_of(text)]

    assert lines == [1, 1, 3, 3, 4]


def test_spills_in_a_circle_are_reported_once_with_the_whole_way() -> None:
    text = """\
default_pool: a
pools:
  a: {replicas: [http://h:1], when_unavailable: {spill: b}}
  b: {replicas: [http://h:2], when_unavailable: {spill: c}}
  c: {replicas: [http://h:3], when_unavailable: {spill: b}}
"""
    assert problems_of(text) == [
        "f.yaml:5:57: pools.c.when_unavailable.spill: expected a pool that does not lead back, "
        "found b → c → b (let the last pool reject)"
    ]


def test_the_two_ways_to_spill_may_lead_in_opposite_directions() -> None:
    text = """\
default_pool: a
pools:
  a: {replicas: [http://h:1], step_budget_us: 9, when_unavailable: {spill: b}}
  b: {replicas: [http://h:2], step_budget_us: 9, when_full: {spill: a}}
"""
    assert not parse_config(text).warnings


def test_what_is_quarantined_spills_nowhere_because_there_is_much_of_it() -> None:
    text = """\
default_pool: a
pools:
  a: {replicas: [http://h:1]}
  quarantine: {replicas: [http://h:2], step_budget_us: 9, when_full: {spill: a}}
"""
    assert problems_of(text) == [
        "f.yaml:4:70: pools.quarantine.when_full: expected wait, found the pool of what is quarantined "
        "(leave when_full out)"
    ]


def test_a_pool_that_is_never_full_and_would_spill_is_warned_of() -> None:
    config = parse_config(
        """\
default_pool: a
pools:
  a: {replicas: [http://h:1], when_full: {spill: b}}
  b: {replicas: [http://h:2], admission: {max_in_flight: 9}, when_full: {spill: c}}
  c: {replicas: [http://h:3]}
""",
        "f.yaml",
    )
    assert [str(warning) for warning in config.warnings] == [
        "f.yaml:3:42: pools.a.when_full: expected a pool that can be full, found a pool that admits everything at once "
        "(give it a step_budget_us, or admission: {max_in_flight: N})"
    ]
    router = build_router(config)
    assert [pool.when_full for pool in router.pools.values()] == [Spill("b"), Spill("c"), None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml:1:1: expected a configuration, found an empty file"),
        ("# nothing\n", "f.yaml:1:1: expected a configuration, found an empty file"),
        ("- a\n", "f.yaml:1:1: expected a mapping of keys to values, found a list of 1"),
        ("just text", "f.yaml:1:1: expected a mapping of keys to values, found 'just text'"),
        ("a: [1, 2", "f.yaml:1:9: expected valid YAML; the parser says: expected ',' or ']', but got '<stream end>'"),
        (
            "when: {step_us: 1}\nx:\n  step_us: >300\n",
            "f.yaml:3:14: expected valid YAML; the parser says: expected chomping or indentation indicators, "
            "but found '0' "
            '(put comparisons in quotes, as in step_us: ">300")',
        ),
        (
            "a:\n\tb: 1\n",
            "f.yaml:2:1: expected valid YAML; the parser says: found character '\\t' that cannot start any token "
            "(indent with spaces)",
        ),
        (
            "model: *\n",
            "f.yaml:1:9: expected valid YAML; the parser says: expected alphabetic or numeric character, "
            "but found '\\n' "
            "(put a value that begins with a special character in quotes)",
        ),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: expected valid YAML; the parser says: but found another document"),
        (
            "a: !env X\n",
            "f.yaml:1:4: expected valid YAML; the parser says: could not determine a constructor for the tag '!env'",
        ),
        (
            "a: &x [*x]\n",
            "f.yaml:1:4: a[0]: expected a value that does not contain itself, found an alias to what encloses it",
        ),
        ("<<: {a: 1}\n", "f.yaml:1:1: expected a key that is plain text, found '<<'"),
        ("? [a]\n: 1\n", "f.yaml:1:3: expected a key that is plain text, found a list or mapping"),
    ],
)
def test_a_file_that_is_no_yaml_mapping_says_where_it_stops_being_one(text: str, said: str) -> None:
    assert problems_of(text) == [said]


def test_a_file_that_can_not_be_read_says_why(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: \xff")

    for path, why in (
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "Is a directory"),
        (binary, "byte 0xff at 3"),
    ):
        with pytest.raises(ConfigError) as refused:
            load_config(path)
        assert str(refused.value).endswith(f"found {why}")
        assert str(refused.value).startswith(str(path))


def test_off_is_a_word_and_true_is_not() -> None:
    config = parse_config("""
default_pool: a
pools:
  a: {replicas: [http://h:1], feed: off}
  b: {replicas: [http://h:2], feed: auto}
rules:
  - {name: b, when: {stream: true}, pool: b}
""")

    assert (config.pools["a"].feed, config.pools["b"].feed) == ("off", "auto")
    assert config.rules[0].when == {"stream": True}


def test_anchors_and_numbers_mean_what_they_look_like() -> None:
    config = parse_config("""
default_pool: a
timeouts: {first_byte_s: 1.5e2, drain_s: 0}
pools:
  a: {replicas: [http://h:1], health: &often {interval_s: .5}, step_budget_us: 1e3}
  b: {replicas: [http://h:2], health: *often}
rules:
  - {name: b, when: {n: 1_000}, pool: b}
""")

    assert config.timeouts.first_byte_s == 150
    assert config.pools["b"].health.interval_s == 0.5
    assert config.pools["a"].step_budget_us == 1000
    assert config.rules[0].when == {"n": 1000}


def test_a_rule_after_one_that_takes_everything_and_a_pool_that_nothing_uses_are_warned_of() -> None:
    config = parse_config(
        """\
default_pool: a
pools:
  a: {replicas: [http://h:1]}
  b: {replicas: [http://h:2]}
  c: {replicas: [http://h:3], when_unavailable: {spill: a}}
rules:
  - {name: all, pool: a}
  - {name: late, when: {stream: true}, pool: c}
""",
        "f.yaml",
    )

    assert [str(warning) for warning in config.warnings] == [
        "f.yaml:4:3: pools.b: expected a pool that takes requests, "
        "found a pool that no rule, spill or default_pool names",
        "f.yaml:8:12: rules[1].name: expected a rule that can match: 'all' before it has no conditions and takes every "
        "request, found 'late' (move it above 'all')",
    ]


def test_the_router_has_the_pools_replicas_and_rules_of_the_configuration() -> None:
    config = parse_config("""
default_pool: a
pools:
  a:
    engine: vllm
    replicas: [https://h, {url: "http://[::1]:2", name: two}]
    step_budget_us: 1000
    when_unavailable: {spill: b}
  b: {replicas: [http://h:3], when_unavailable: {reject: {retry_after_s: 9}}}
  c: {replicas: [http://h:4], when_unavailable: reject}
rules:
  - {name: r, when: {stream: true, n: ">1"}, pool: b}
  - {name: s, when: {stream: true}, pool: c}
""")

    router = build_router(config)

    first, second = router.pools["a"].replicas
    assert (first.name, first.url, first.host, first.port, first.tls) == ("h:443", "https://h:443", "h", 443, True)
    assert (second.name, second.url, second.host, second.port, second.tls) == ("two", "http://[::1]:2", "::1", 2, False)
    assert (first.engine, first.pool, first.available, first.in_flight) == ("vllm", "a", False, 0)
    assert router.pools["a"].step_budget_us == 1000
    assert router.pools["a"].when_unavailable == Spill("b")
    assert router.pools["b"].when_unavailable == Reject(9)
    assert router.pools["c"].when_unavailable == Reject(1)
    assert [(rule.name, rule.pool, len(rule.conditions)) for rule in router.rules] == [
        ("r", "b", 2),
        ("s", "c", 1),
        ("default", "a", 0),
    ]


def test_a_checked_configuration_can_not_be_changed() -> None:
    config: Config = parse_config(SMALLEST)

    with pytest.raises(ValueError, match="frozen"):
        config.default_pool = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "pools: {a: {discover: {dns: {name: h, port: 1}}}}",
            "2:23: pools.a.discover: expected a default pool that can serve at once, found only what discover finds: "
            "nothing at first (name one replica beside discover, or another pool with when_unavailable: {spill: POOL})",
        ),
        (
            "pools: {a: {replicas: [http://h:1], step_budget_us: 100, hard_limit_us: 100}}",
            "2:73: pools.a.hard_limit_us: expected more than step_budget_us, which is 100, found 100.0",
        ),
        (
            "pools: {a: {replicas: [http://h:1], step_budget_us: 100}}\n"
            "rules: [{name: dear, when: {step_us: '>100'}, pool: a}]",
            "3:38: rules[0].when.step_us: expected less than the step_budget_us of pool a, 100, "
            "found '>100': no replica can hold two of these requests at once",
        ),
        (
            "pools: {a: {replicas: [http://h:1]}, b: {replicas: [http://h:2], step_budget_us: 100}}\n"
            "rules: [{name: dear, when: {observed_step_us: 100..200}, pool: a, fallbacks: [b]}]",
            "3:47: rules[0].when.observed_step_us: expected less than the step_budget_us of pool b, 100, "
            "found '100..200': no replica can hold two of these requests at once",
        ),
        (
            "pools: {a: {replicas: [http://h:1], step_budget_us: 100}}\n"
            "rules: [{name: dear, when: {cel: 'stream && step_us > 1e3'}, pool: a}]",
            "3:34: rules[0].when.cel: expected less than the step_budget_us of pool a, 100, "
            "found 'stream && step_us > 1e3': no replica can hold two of these requests at once",
        ),
        (
            "pools: {a: {replicas: [http://h:1]}, b: {replicas: [http://h:2], step_budget_us: 100}}\n"
            "rules: [{name: dear, when: 'step_us >= 100.0', cheapest_backend: [a, b]}]",
            "3:28: rules[0].when: expected less than the step_budget_us of pool b, 100, "
            "found 'step_us >= 100.0': no replica can hold two of these requests at once",
        ),
    ],
)
def test_pools_that_are_empty_and_budgets_that_nothing_keeps_are_warned_of(text: str, said: str) -> None:
    config = parse_config(f"default_pool: a\n{text}\n", "f.yaml")

    assert [str(warning) for warning in config.warnings] == [f"f.yaml:{said}"]
