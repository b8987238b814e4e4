"""Which grammars are used most, within bounds on how many are counted and on the bytes that are kept."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.hookcost.grammarbook import GrammarBook, Key

PATH = "/v1/chat/completions"


def key(name: object) -> Key:
    return PATH, f"g1-{name}"


def use(book: GrammarBook, name: object, times: int = 1, size: int = 10, signature: str = "s1-a") -> None:
    for _ in range(times):
        if book.used(key(name), signature):
            book.keep(key(name), b"%-*b" % (size, str(name).encode()), f"{signature}-own")


def names(book: GrammarBook) -> list[str]:
    return [kept.body.decode().strip() for kept in book.top()]


def test_the_most_used_come_first_and_one_use_is_none() -> None:
    book = GrammarBook(3, 1000, 100)
    for name, times in (("once", 1), ("some", 3), ("most", 9), ("few", 2), ("many", 5)):
        use(book, name, times)
    assert names(book) == ["most", "many", "some"]


def test_a_grammar_is_told_with_its_path_and_with_all_signatures_that_ask_for_it() -> None:
    book = GrammarBook(2, 1000, 100)
    use(book, "a", 2, signature="s1-x")
    use(book, "a", 1, signature="s1-y")
    (kept,) = book.top()
    assert (kept.key, kept.path) == (key("a"), PATH)
    assert kept.signatures == {"s1-x", "s1-y", "s1-x-own"}


def test_a_body_is_asked_for_ever_less_often_while_it_is_not_kept() -> None:
    book = GrammarBook(2, 1000, 100)
    asked = [at for at in range(1, 65) if book.used(key("a"), "s1-a")]
    assert asked == [2, 4, 8, 16, 32, 64]


def test_what_is_too_large_is_not_kept() -> None:
    book = GrammarBook(2, 1000, 100)
    use(book, "large", 4, size=101)
    assert (names(book), book.kept_bytes) == ([], 0)
    assert not book.may_keep(b"x" * 101)
    assert not GrammarBook(2, 50, 100).may_keep(b"x" * 51)


def test_the_less_used_make_room_and_the_more_used_do_not() -> None:
    book = GrammarBook(4, 100, 100)
    use(book, "most", 8, size=60)
    use(book, "few", 2, size=40)
    use(book, "more", 4, size=30)
    assert (names(book), book.kept_bytes) == (["most", "more"], 90)
    use(book, "late", 2, size=90)
    assert names(book) == ["most", "more"]


def test_an_engine_refuses_one_and_it_begins_anew() -> None:
    book = GrammarBook(2, 100, 100)
    use(book, "a", 4)
    book.drop(key("a"))
    book.drop(key("never seen"))
    assert (names(book), book.kept_bytes, len(book)) == ([], 0, 0)
    use(book, "a", 1)
    assert names(book) == []
    use(book, "a", 1)
    assert names(book) == ["a"]


def test_what_was_used_long_ago_fades() -> None:
    book = GrammarBook(1, 1000, 100)
    use(book, "past", 900)
    use(book, "present", 1500)
    assert names(book) == ["present"]
    use(book, "future", 20_000)
    assert names(book) == ["future"]


def test_other_bounds_hold_at_once() -> None:
    book = GrammarBook(8, 1000, 100)
    for at, name in enumerate("abcdefgh"):
        use(book, name, 2 + at, size=50 if name == "h" else 20)
    book.bound(2, 60, 40)
    assert names(book) == ["g", "f"]
    assert book.kept_bytes <= 60
    assert len(book) <= 8
    book.bound(1, 60, 40)
    assert names(book) == ["g"]
    assert len(book) <= 4


@given(st.lists(st.integers(0, 40), max_size=400), st.integers(1, 4))
def test_no_more_are_counted_than_may_be_and_none_that_is_used_often_is_missed(asked: list[int], grammars: int) -> None:
    book = GrammarBook(grammars, 120, 40)
    for each in asked:
        use(book, each, size=10 + each % 40)
        assert len(book) <= 4 * grammars
        assert book.kept_bytes <= 120
        assert book.kept_bytes >= sum(len(kept.body) for kept in book.top())
    # Of what makes up more than this share of all uses, space-saving loses nothing.
    often = [each for each, count in Counter(asked).items() if count > len(asked) / (4 * grammars)]
    assert all(key(each) in book for each in often)
