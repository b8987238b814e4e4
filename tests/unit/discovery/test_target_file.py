"""What a file of targets says, and what is wrong with one."""

from pathlib import Path

import pytest

from gateway.discovery.member import Member
from gateway.discovery.targetfile import read_targets


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("[]", []),
        ('[{"targets": []}]', []),
        ('[{"targets": ["10.0.0.7:30000"]}]', [Member("http://10.0.0.7:30000")]),
        ("- targets: [https://h:1, 'h:2']\n", [Member("https://h:1"), Member("http://h:2")]),
        (
            "- targets: ['h:1']\n  labels: {name: a, weight: '2.5', zone: z, env: prod}\n",
            [Member("http://h:1", "a", 2.5, "z")],
        ),
        ("- targets: ['h:1', 'h:2']\n  labels: {name: a}\n", [Member("http://h:1"), Member("http://h:2")]),
    ],
)
def test_targets_are_addresses_or_urls_with_labels(tmp_path: Path, text: str, members: list[Member]) -> None:
    file = tmp_path / "targets"
    file.write_text(text)

    assert read_targets(file, "http") == members


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is neither JSON nor YAML"),
        ("", "expected a list of groups"),
        ("{targets: []}", "expected a list of groups"),
        ("[1]", "expected a group with `targets`"),
        ("[{targets: h}]", "expected a group with `targets`"),
        ("[{targets: [1]}]", "expected a target such as"),
        ("[{targets: ['h:1'], labels: {weight: 0}}]", "expected a weight above 0"),
        ("[{targets: ['h:1'], labels: {weight: heavy}}]", "expected a weight above 0"),
    ],
)
def test_a_mistake_names_the_file(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "targets"
    file.write_text(text)

    with pytest.raises(ValueError, match=str(file)) as refused:
        read_targets(file, "http")

    assert said in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none: No such file"):
        read_targets(tmp_path / "none", "http")
