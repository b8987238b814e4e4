"""What the configuration takes from elsewhere: variables of the environment, and files with secrets."""

from pathlib import Path

import pytest

from gateway.control.config import load_config, parse_config
from gateway.control.environment import VariableError, expand
from gateway.control.problem import ConfigError

SMALLEST = """
default_pool: all
pools:
  all: {replicas: [http://127.0.0.1:30000]}
"""
VARIABLES = {"HOST": "10.0.0.7", "PORT": "30000", "EMPTY": "", "YAML": "a: [1]", "DIGITS": "12345", "TRUE": "true"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("${HOST}", "10.0.0.7"),
        ("http://${HOST}:${PORT}", "http://10.0.0.7:30000"),
        ("${NONE:-x}", "x"),
        ("${NONE:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${HOST:-x}", "10.0.0.7"),
        ("${NONE:-http://h:1/${HOST}}", None),
        ("$${HOST}", "${HOST}"),
        ("$$${HOST}", "$${HOST}"),
        ("$HOST costs 5$", "$HOST costs 5$"),
        ("${YAML}", "a: [1]"),
    ],
)
def test_variables_are_filled_in_where_they_are_named(text: str, expanded: str | None) -> None:
    if expanded is None:  # a default ends at the first brace: no nesting
        assert expand(text, VARIABLES).text == "http://h:1/${HOST}"
    else:
        assert expand(text, VARIABLES).text == expanded


@pytest.mark.parametrize(
    ("text", "at"), [("${NONE}", 0), ("a${NONE}", 1), ("${", 0), ("${a-b}", 0), ("${1}", 0), ("x ${ HOST }", 2)]
)
def test_a_reference_that_leads_nowhere_is_refused_where_it_stands(text: str, at: int) -> None:
    with pytest.raises(VariableError) as refused:
        expand(text, VARIABLES)

    assert refused.value.at == at


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_config(text + SMALLEST, "f.yaml", VARIABLES)
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (
            "listen: ${NONE}:1",
            "f.yaml:1:9: listen: expected the environment variable NONE, found none of that name "
            "(set it, or give a default: ${NONE:-…})",
        ),
        (
            'listen: "h:${NONE}"',
            "f.yaml:1:12: listen: expected the environment variable NONE, found none of that name "
            "(set it, or give a default: ${NONE:-…})",
        ),
        (
            "tenants:\n  header: ${HOST",
            "f.yaml:2:11: tenants.header: expected a variable such as ${NAME} or ${NAME:-default}, found ${HOST} "
            "(write $${ where ${ itself is meant)",
        ),
        (
            "limits:\n  max_body_bytes: ${HOST}",
            "f.yaml:2:19: limits.max_body_bytes: expected a whole number, found what ${HOST} holds",
        ),
        (
            "listen: ${DIGITS}",
            "f.yaml:1:9: listen: expected HOST:PORT, as in 127.0.0.1:8080, found what ${DIGITS} holds",
        ),
        (
            "limits: {max_body_bytes: ${DIGITS}}",
            "f.yaml:1:27: expected valid YAML; the parser says: expected ',' or '}', but got '{' "
            '(within { } and [ ] put a variable in quotes, as in {url: "${ENGINE}"})',
        ),
        ("limits: ${YAML}", "f.yaml:1:9: limits: expected a mapping of keys to values, found what ${YAML} holds"),
    ],
)
def test_a_mistake_with_a_variable_names_the_line_and_never_what_the_variable_holds(mistake: str, said: str) -> None:
    assert problems_of(mistake) == [said]


def test_the_key_decides_whether_a_variable_is_a_number_or_text() -> None:
    config = parse_config(
        """
limits: {max_body_bytes: "${DIGITS}"}
timeouts:
  drain_s: ${PORT}
default_pool: all
pools:
  all:
    replicas: ["http://${HOST}:${PORT}"]
    feed_token: ${DIGITS}
rules:
  - {name: many, when: {n: "${DIGITS}"}, pool: all}
""",
        variables=VARIABLES,
    )

    assert config.limits.max_body_bytes == 12345
    assert config.timeouts.drain_s == 30000
    assert config.pools["all"].feed_token == "12345"
    assert str(config.pools["all"].replicas[0].url) == "http://10.0.0.7:30000"


def test_a_secret_comes_from_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    path = tmp_path / "f.yaml"
    path.write_text("default_pool: a\npools:\n  a: {replicas: [http://h:1], feed_token: !file token}\n")

    config = load_config(path)

    assert config.pools["a"].feed_token == "s3cret"
    assert config.files == (str(path), str(tmp_path / "token"))


def test_a_secret_that_is_no_good_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    path = tmp_path / "f.yaml"
    path.write_text("default_pool: a\nlisten: !file token\npools:\n  a: {replicas: [http://h:1]}\n")

    with pytest.raises(ConfigError) as refused:
        load_config(path)

    assert "s3cret" not in str(refused.value)
    assert f"{path}:2:9: listen: expected HOST:PORT" in str(refused.value)


def test_a_secret_whose_file_is_missing_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("default_pool: a\npools:\n  a: {replicas: [http://h:1], feed_token: !file none}\n")

    with pytest.raises(ConfigError) as refused:
        load_config(path)

    where = f"{path}:3:43: pools.a.feed_token"
    assert str(refused.value) == f"{where}: expected a readable file {tmp_path / 'none'}, found no such file"
