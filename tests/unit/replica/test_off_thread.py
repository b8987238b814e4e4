"""What our grammar backends make of SGLang's: who is refused, what is kept, what is done ahead and where."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from replica.grammar.trial import TrialSetup
from replica.settings import Listen, read_settings
from replica.sglang import backend
from replica.sglang.backend import OffThread

KEY = ("json", '{"type":"string"}')


@dataclass
class Grammar:
    """One of SGLang's grammar objects, or an invalid one."""

    error_message: str | None = None
    copies: list["Grammar"] = field(default_factory=list)

    def copy(self) -> "Grammar":
        self.copies.append(Grammar())
        return self.copies[-1]


class Stock:
    """What SGLang's backends have in common."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1)
        self.cache: Any = {}
        self.while_compiling: Any = Grammar

    def get_cached_or_future_value(self, key: tuple[str, str], _require_reasoning: bool) -> tuple[Any, bool]:
        found = self.cache.get(key)
        return (found, True) if found else (self.executor.submit(self._init_value_dispatch, key, False), False)

    def _init_value_dispatch(self, _key: tuple[str, str], _require_reasoning: bool) -> Any:
        return self.while_compiling()

    def set_cache(self, key: tuple[str, str], value: Any) -> None:
        self.cache[key] = value

    def reset(self) -> None:
        self.cache.clear()


class Ours(OffThread, Stock):
    pass


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Ours:
    monkeypatch.setattr(backend, "_invalid", Grammar)
    made = Ours()
    settings = read_settings({"STEPLANE_COMPILE_TRIAL": "off"}, Listen("127.0.0.1", 0))
    made.take_over(settings, TrialSetup("none", "", {}), lambda _: 1, lambda _: False, threads=1)
    return made


def ask(ours: Ours) -> Any:
    found, cached = ours.get_cached_or_future_value(KEY, False)
    return found if cached else found.result(30)


def test_a_grammar_is_sized_and_copied_once_before_the_step_sees_it(ours: Ours) -> None:
    grammar = ask(ours)
    assert len(grammar.copies) == 1
    ours.set_cache(KEY, grammar)
    assert ask(ours) is grammar


def test_a_grammar_that_timed_out_while_it_was_compiled_is_refused(ours: Ours) -> None:
    def time_out() -> Grammar:
        ours.set_cache(KEY, Grammar("Grammar preprocessing timed out"))
        return Grammar()

    ours.while_compiling = time_out
    ask(ours)
    assert "took over 10000 ms to compile a short while ago" in ask(ours).error_message
    ours.reset()
    ours.while_compiling = Grammar
    assert ask(ours).error_message is None


@pytest.mark.parametrize(
    ("message", "refused", "kept"),
    [
        ("Grammar preprocessing timed out", False, False),  # before its turn came
        ("step_budget_exceeded: its grammar was not compiled within 10 s", True, False),
        ("no such type", False, True),
    ],
)
def test_only_what_was_too_slow_itself_is_refused(ours: Ours, message: str, refused: bool, kept: bool) -> None:
    ours.set_cache(KEY, Grammar(message))
    told = ask(ours).error_message
    assert (told is not None and "a short while ago" in told) is refused
    assert (told == message) is kept


def test_what_leaves_the_cache_is_let_go_by_a_compile_thread(ours: Ours) -> None:
    ours.set_cache(KEY, ask(ours))
    ours.reset()
    ours.executor.submit(int).result(30)
    assert not ours.cache._given_up
    ours.set_cache(KEY, ask(ours))
    ours.cache.pop(KEY)
    assert ours.cache._given_up
    ask(ours)
    assert not ours.cache._given_up
