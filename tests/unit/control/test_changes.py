"""What two configurations differ in, key by key, and that no secret shows."""

import pytest

from gateway.control.changes import changes_between
from gateway.control.config import Config, parse_config
from gateway.control.secrets import HIDDEN, shown_config, shown_value

BASE = """
default_pool: a
pools:
  a: {replicas: [{url: "http://h:1", name: one}], step_budget_us: 100, feed_token: old-s3cret}
  b: {replicas: [http://h:2]}
rules:
  - {name: first, when: {stream: true}, pool: b}
  - {name: second, when: {heavy: true}, pool: b}
"""


def configured(text: str) -> Config:
    return parse_config(text, variables={"TOKEN": "new-s3cret"})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("step_budget_us: 100", "step_budget_us: 200", ["pools.a.step_budget_us: 100.0 → 200.0"]),
        ("http://h:1", "http://h:3", ["pools.a.replicas.one.url: http://h:1 → http://h:3"]),
        (
            "[http://h:2]",
            "[http://h:2, http://h:4]",
            ["pools.b.replicas.h:4: http://h:4 is new"],
        ),
        (
            "  b: {replicas: [http://h:2]}",
            "  b: {replicas: [http://h:2]}\n  c: {replicas: [http://h:4]}",
            ["pools.c: a part with replicas is new"],
        ),
        (
            "  - {name: second, when: {heavy: true}, pool: b}\n",
            "",
            ["rules.second: a part with name, pool, when is gone"],
        ),
        ("stream: true", "stream: false", ["rules.first.when.stream: True → False"]),
        ("old-s3cret", '"${TOKEN}"', [f"pools.a.feed_token: {HIDDEN} → {HIDDEN}"]),
        ("default_pool: a", "default_pool: ${NONE:-b}", [f"default_pool: a → {HIDDEN}"]),
        ("default_pool: a", "default_pool: a\nlisten: 127.0.0.1:1", ["listen: a list of 1 → a list of 1"]),
        (
            "name: first",
            "name: third",
            [
                "rules.first: a part with name, pool, when is gone",
                "rules.third: a part with name, pool, when is new",
            ],
        ),
        ("x", "x", []),
    ],
)
def test_each_difference_is_said_once(old: str, new: str, said: list[str]) -> None:
    changes = changes_between(configured(BASE), configured(BASE.replace(old, new, 1)))

    assert [str(change) for change in changes] == said
    assert "s3cret" not in str(changes)


def test_another_order_of_rules_is_a_difference() -> None:
    first, second = BASE.strip().splitlines()[-2:]
    swapped = BASE.replace(first, "X").replace(second, first).replace("X", second)

    changes = changes_between(configured(BASE), configured(swapped))

    assert [str(change) for change in changes] == ["rules: their order → another order"]


@pytest.mark.parametrize(
    ("addition", "restart"),
    [
        ("listen: 127.0.0.1:1", True),
        ("admin: {listen: 127.0.0.1:1}", True),
        ("workers: 2", True),
        ("limits: {max_body_bytes: 5}", False),
        ("breaker: {back_off: {first_s: 5}}", False),
        ("timeouts: {first_byte_s: 5}", False),
        ("reload: {watch: true}", False),
    ],
)
def test_what_a_running_gateway_can_not_take_over_is_marked(addition: str, restart: bool) -> None:
    changes = changes_between(configured(BASE), configured(f"{addition}{BASE}"))

    assert {change.restart for change in changes} == {restart}


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("password", "x", HIDDEN),
        ("feed_token", "x", HIDDEN),
        ("api_key", "x", HIDDEN),
        ("feed_token", "", ""),
        ("password", None, None),
        ("password_file", "redis-password", "redis-password"),
        ("url", "redis://user:pw@h:1/0", f"redis://{HIDDEN}@h:1/0"),
        ("url", "redis://h:1/0", "redis://h:1/0"),
        ("max_tokens", 5, 5),
        ("name", "x", "x"),
    ],
)
def test_a_value_is_hidden_by_the_name_of_its_key(key: str, value: object, shown: object) -> None:
    assert shown_value(("some", key), value, {}) == shown


def test_a_whole_configuration_is_shown_without_what_came_from_elsewhere() -> None:
    config = configured(BASE.replace("default_pool: a", "default_pool: ${NONE:-a}"))

    shown = shown_config(config, config.origins)

    assert shown["default_pool"] == HIDDEN
    assert shown["pools"]["a"]["feed_token"] == HIDDEN
    assert shown["pools"]["a"]["replicas"][0]["url"] == "http://h:1"
    assert shown["timeouts"]["connect_s"] == 2
