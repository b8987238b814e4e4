"""Stop strings and expressions: matched on decoded text, across token borders, holding back what may become a match."""

import pytest

from replica.simulator.stop import StopMatcher
from replica.simulator.vocabulary import Vocabulary


def walk(vocabulary: Vocabulary, text: str, stop: tuple[str, ...] = (), regex: tuple[str, ...] = ()) -> list[str]:
    """What the matcher says after each token of the text: a match, `hold` or `go`."""
    matcher, output, said = StopMatcher(stop, regex, vocabulary), [], []
    for token in vocabulary.encode(text):
        output.append(token)
        check = matcher.check(output)
        said.append(check.matched or ("hold" if check.hold else "go"))
        if check.matched:
            break
    return said


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("hello world again", ("world",), ["go", "world"]),
        ("hello world again", ("w",), ["go", "w"]),
        ("hello world again", ("never",), ["go", "go", "hold"]),
        ("a. b. c", (". c",), ["go", "hold", "go", "hold", ". c"]),
        ("one\n\ntwo", ("\n\n",), ["go", "\n\n"]),
        ("Grüße 日本 end", ("日本",), ["go", "go", "go", "hold", "日本"]),
        ("x", ("",), ["go"]),
        ("ab ab", ("b a", "zzz"), ["hold", "b a"]),
    ],
)
def test_stop_strings(vocabulary: Vocabulary, text: str, stop: tuple[str, ...], expected: list[str]) -> None:
    assert walk(vocabulary, text, stop) == expected


@pytest.mark.parametrize(
    ("text", "regex", "expected"),
    [
        ("call 555 now", r"\d{3}", r"\d{3}"),
        ("call 55 now", r"\d{3}", "go"),
        ("the end.", r"end\.$", r"end\.$"),
        ("aaaa b then c", r"a+.*c", r"a+.*c"),
    ],
)
def test_stop_expressions_are_searched_in_the_tail(
    vocabulary: Vocabulary, text: str, regex: str, expected: str
) -> None:
    assert walk(vocabulary, text, regex=(regex,))[-1] == expected


def test_a_match_early_in_the_output_is_not_seen_again_later(vocabulary: Vocabulary) -> None:
    matcher = StopMatcher(("hello",), (), vocabulary)
    output = vocabulary.encode("hello") + vocabulary.encode(" there and so on and so forth")
    assert matcher.check(output).matched is None


def test_a_stop_string_split_over_many_tokens_is_found(vocabulary: Vocabulary) -> None:
    matcher = StopMatcher(("abc",), (), vocabulary)
    a, b, c = (vocabulary.id_of(x) for x in "abc")
    assert [matcher.check(o).hold for o in ([a], [a, b])] == [True, True]
    assert matcher.check([a, b, c]).matched == "abc"
