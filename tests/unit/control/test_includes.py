"""A configuration in several files: what is merged, what is refused, and that every finding names its file and line."""

from pathlib import Path

import pytest

from gateway.control.config import Config, load_config
from gateway.control.problem import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".yaml")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def load(folder: Path, **files: str) -> Config:
    write(folder, **files)
    return load_config(folder / "main.yaml")


def problems_of(folder: Path, **files: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load(folder, **files)
    return [str(problem).replace(f"{folder}/", "") for problem in refused.value.problems]


MAIN = """\
include: [replicas/*.yaml, rules.yaml]
default_pool: a
pools:
  a: {replicas: [http://h:1], step_budget_us: 100}
rules:
  - {name: first, when: {stream: true}, pool: a}
"""


def test_mappings_are_merged_and_lists_appended_in_the_order_of_the_files(folder: Path) -> None:
    config = load(
        folder,
        main=MAIN,
        replicas__2="pools:\n  b: {replicas: [http://h:3]}\n",
        replicas__1="pools:\n  a:\n    replicas: [http://h:2]\n    engine: vllm\n",
        rules="rules:\n  - {name: second, when: {heavy: true}, pool: b}\n",
    )

    assert [str(each.url) for each in config.pools["a"].replicas] == ["http://h:1", "http://h:2"]
    assert (config.pools["a"].engine, config.pools["a"].step_budget_us) == ("vllm", 100)
    assert [rule.name for rule in config.rules] == ["first", "second"]
    assert [Path(file).name for file in config.files] == ["main.yaml", "1.yaml", "2.yaml", "rules.yaml"]


def test_a_finding_names_the_file_and_line_where_it_stands(folder: Path) -> None:
    assert problems_of(
        folder,
        main=MAIN,
        replicas__1="pools:\n  a:\n    replicas:\n      - http://h:2\n      - h:3\n",
        rules="rules:\n  - {name: second, pool: a}\n  - {name: third, pool: none, when: {n: '>x'}}\n",
    ) == [
        "replicas/1.yaml:5:9: pools.a.replicas[2].url: expected a URL such as http://10.0.0.7:30000, "
        "with http:// or https://, found 'h:3' (did you mean http://h:3?)"
    ]
    assert [
        said.split(": expected")[0]
        for said in problems_of(
            folder,
            replicas__1="pools: {a: {replicas: [http://h:2]}}\n",
            rules="rules:\n  - {name: second, pool: a}\n  - {name: third, pool: none, when: {n: '>x'}}\n",
        )
    ] == ["rules.yaml:3:25: rules[2].pool", "rules.yaml:3:41: rules[2].when.n"]


def test_an_include_may_include_by_its_own_folder(folder: Path) -> None:
    config = load(
        folder,
        main="include: [sub/one.yaml]\ndefault_pool: a\n",
        sub__one="include: [two.yaml]\n",
        sub__two="pools: {a: {replicas: [http://h:1]}}\n",
    )

    assert list(config.pools) == ["a"]


def test_a_pattern_that_finds_nothing_is_an_empty_folder(folder: Path) -> None:
    config = load(folder, main="include: [none/*.yaml]\ndefault_pool: a\npools: {a: {replicas: [http://h:1]}}\n")

    assert list(config.pools) == ["a"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"main": "include: [b.yaml]\ndefault_pool: a\n", "b": "\ndefault_pool: b\n"},
            ["b.yaml:2:1: default_pool: expected each key in one file, found a second one (the first is main.yaml:2)"],
        ),
        (
            {
                "main": "include: [b.yaml, c.yaml]\n",
                "b": "pools:\n  a: {engine: vllm}\n",
                "c": "pools:\n  a:\n    engine: sglang\n",
            },
            ["c.yaml:3:5: pools.a.engine: expected each key in one file, found a second one (the first is b.yaml:2)"],
        ),
        (
            {"main": "include: [b.yaml]\n", "b": "include: [c.yaml]\n", "c": "include: [main.yaml]\n"},
            [
                "c.yaml:1:11: include[0]: expected a file that does not lead back, "
                "found main.yaml → b.yaml → c.yaml → main.yaml"
            ],
        ),
        (
            {"main": "include:\n  - b.yaml\n  - c.yaml\n", "b": "include: [c.yaml]\n", "c": "rules: []\n"},
            ["main.yaml:3:5: include[1]: expected each file once, found c.yaml a second time (the first is b.yaml:1)"],
        ),
        (
            {"main": "include: [none.yaml]\n"},
            ["main.yaml:1:11: include[0]: expected a readable file none.yaml, found no such file"],
        ),
        (
            {"main": "include: b.yaml\n"},
            ["main.yaml:1:10: include: expected a list of files, as in [replicas/*.yaml], found 'b.yaml'"],
        ),
        ({"main": "include: [1]\n"}, ["main.yaml:1:11: include[0]: expected a file, as in replicas/*.yaml, found 1"]),
        (
            {"main": "include: [b.yaml]\n", "b": "a: [1, 2"},
            ["b.yaml:1:9: expected valid YAML; the parser says: expected ',' or ']', but got '<stream end>'"],
        ),
    ],
)
def test_what_can_not_be_merged_names_both_places(folder: Path, files: dict[str, str], said: list[str]) -> None:
    assert problems_of(folder, **files) == said
