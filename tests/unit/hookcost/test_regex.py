"""The anatomy of regular expressions, as tables."""

import pytest

from gateway.hookcost.charclass import CharClass, coverage
from gateway.hookcost.ebnf import EbnfBoundError, EbnfError, read_ebnf
from gateway.hookcost.regex import RegexBoundError, RegexError, read_regex


@pytest.mark.parametrize(
    ("source", "states", "repeat"),
    [
        ("abc", 3, 1),
        ("^.{1,255}$", 255, 255),
        ("[a-z]{8}-[0-9]{4}", 13, 8),
        ("([a-z]{1,100} ){1,100}", 10_100, 100),
        ("(?:ab){3}", 6, 1),
        ("a{2}{3}", 6, 3),
        ("a{,5}", 5, 5),
        ("a{5,}", 5, 5),
        ("x{y}", 4, 1),
        ("(?P<n>a)(?<m>b)(?i)c", 3, 1),
        ("[]a]{2}", 2, 2),
        ("\\d{3}\\.\\w+", 5, 3),
        ("", 0, 1),
        ("a|b|c", 3, 1),
    ],
)
def test_states_and_repetitions_are_counted(source: str, states: int, repeat: int) -> None:
    regex = read_regex(source)
    assert (regex.states, max([place.repeat for place in regex.positions], default=1)) == (states, repeat)


@pytest.mark.parametrize(
    ("source", "nested", "adjacent"),
    [
        ("a+b+", 1, 0),
        ("a*a*", 1, 1),
        ("a*ba*", 1, 0),
        ("a*b*a*", 1, 1),
        (".*.*=", 1, 1),
        ("(a+)+", 2, 0),
        ("((a*)*)*b", 3, 0),
        ("([A-Za-z]+ ?)+", 2, 0),
        ("(a{1,5})*", 1, 0),
        ("[a-z]+[0-9]+", 1, 0),
        ("[a-z0-9]+[0-9]*", 1, 1),
        ("(a|b*)*", 2, 0),
        ("(?:x*)?x*", 1, 1),
    ],
)
def test_loops_in_loops_and_beside_loops_are_found(source: str, nested: int, adjacent: int) -> None:
    regex = read_regex(source)
    assert (regex.nested_loops, regex.adjacent_loops) == (nested, adjacent)


@pytest.mark.parametrize(
    ("source", "says", "position"),
    [
        ("(", "a group without", 0),
        ("a)", "unbalanced", 1),
        ("[a-", "a character class without", 0),
        ("*a", "nothing to repeat", 0),
        ("^*", "nothing to repeat", 2),
        ("x{5,2}", "wrong way round", 1),
        ("[z-a]", "down to", 2),
        ("\\", "backslash at the end", 0),
        ("(?", "unknown kind of group", 0),
        ("(" * 300 + ")" * 300, "more than 256 deep", 256),
    ],
)
def test_what_does_not_compile_is_said_with_its_place(source: str, says: str, position: int) -> None:
    with pytest.raises(RegexError, match=says) as error:
        read_regex(source)
    assert error.value.position == position


@pytest.mark.parametrize("source", ["a" * 70_000, "(a|b)*" * 2000, "((((a*)*)*)*)*" * 300])
def test_what_is_too_much_is_bounded(source: str) -> None:
    with pytest.raises(RegexBoundError):
        read_regex(source)


@pytest.mark.parametrize(
    ("source", "attribute"),
    [
        ("(?=a)b", "lookaround"),
        ("(?!a)b", "lookaround"),
        ("(?<=a)b", "lookaround"),
        ("(?<!a)b", "lookaround"),
        ("(a)\\1", "backreference"),
        ("(?<n>a)\\k<n>", "backreference"),
        ("\\bword", "boundary"),
        ("\\p{L}+", "unicode_property"),
        ("\u00e9", "non_ascii"),
    ],
)
def test_what_automata_cannot_do_is_marked(source: str, attribute: str) -> None:
    assert getattr(read_regex(source), attribute)
    assert not getattr(read_regex("plain"), attribute)


@pytest.mark.parametrize(
    ("source", "covered"),
    [
        ("[0-9]", (1, 0, 0, 0, 0, 0)),
        ("[a-z]", (0, 1, 0, 0, 0, 0)),
        ("[a-m]", (0, 0.5, 0, 0, 0, 0)),
        ("\\w", (1, 1, 1, 0, 0.26, 0)),
        ("[^a-z]", (1, 0, 1, 1, 1, 1)),
        ("[\\x00-\\x7f]", (1, 1, 1, 1, 1, 0)),
        (".", (1, 1, 1, 1, 1, 1)),
        ("\\S", (1, 1, 1, 0, 1, 1)),
        ("[\\u4e00-\\u9fff]", (0, 0, 0, 0, 0, 0.59)),
    ],
)
def test_classes_are_seen_as_shares_of_character_groups(source: str, covered: tuple[float, ...]) -> None:
    assert coverage(read_regex(source).positions[0].chars) == pytest.approx(covered, abs=0.01)


def test_a_class_and_its_inverse_share_nothing() -> None:
    chars = CharClass(0b1010)
    assert chars.inverted().mask & chars.mask == 0
    assert chars.inverted().inverted() == chars


@pytest.mark.parametrize(
    ("source", "finite", "nested", "ambiguous"),
    [
        ('root ::= "yes" | "no"', True, False, 0),
        ('root ::= a b\na ::= "x"\nb ::= "y" | "z"', True, False, 0),
        ("root ::= [a-z]+", False, False, 0),
        ("root ::= ch+ ([ \\n] ch+)*\nch ::= [a-z]", False, True, 0),
        ('s ::= s s | "a"', False, False, 1),
        ('list ::= "[" item ("," item)* "]"\nitem ::= list | "x"', False, True, 0),
        ("root ::= (a)*\na ::= [0-9]{1,3}", False, False, 0),
        ("start: WORD+\nWORD: /[a-z]+/", False, True, 0),
        ('root ::= "a" # s ::= s s\n', True, False, 0),
    ],
)
def test_raw_grammars_are_taken_apart(source: str, finite: bool, nested: bool, ambiguous: int) -> None:
    ebnf = read_ebnf(source)
    assert (ebnf.finite, ebnf.nested_loops, ebnf.ambiguous) == (finite, nested, ambiguous)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "no rule"),
        ("just text", "no rule"),
        ('root ::= ("a"', "not closed"),
        ('root ::= "a")', "unbalanced"),
        ("root ::= " + "(" * 300 + '"a"' + ")" * 300, "more than 256 deep"),
    ],
)
def test_a_grammar_that_is_none_is_refused_with_the_reason(source: str, says: str) -> None:
    with pytest.raises(EbnfError, match=says):
        read_ebnf(source)


@pytest.mark.parametrize("source", ["root ::= " + "a " * 40_000, "root ::= " + "a " * 3_000])
def test_a_grammar_that_is_too_long_is_bounded(source: str) -> None:
    with pytest.raises(EbnfBoundError):
        read_ebnf(source)
