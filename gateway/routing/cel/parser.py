"""From the text of an expression in CEL to its tree, within bounds.

What is left out of the language has no use in a rule, or no bound: macros that loop (`all`, `exists`, `map`, …), bytes,
maps and messages. Whether names exist and types fit is checker.py's.
"""

import re
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.routing.cel.tree import Binary, CelError, Choice, Field, Function, Index, Items, Literal, Name, Node, Unary

MOST_CHARACTERS = 2_000
_MOST_TOKENS = 400
_MOST_NESTING = 24

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n\f]|//[^\n]*)+)
    |(?P<text>r?(?:\"(?:[^"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'))
    |(?P<number>0x[0-9A-Fa-f]+|(?:[0-9]+\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![0-9A-Za-z_])
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>&&|\|\||[<>=!]=|[-+*/%<>!?:.,()\[\]])""",
    re.VERBOSE,
)
_ESCAPE = r"""\\(?:[abfnrtv\\"']|x[0-9A-Fa-f]{2}|u(?![dD][89A-Fa-f])[0-9A-Fa-f]{4}|[0-3][0-7]{2})"""
_ODD_ESCAPE = re.compile(rf"(?:[^\\]|{_ESCAPE})*+(\\.).*", re.DOTALL)
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_RESERVED = frozenset(
    (
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import"),
        *("in", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
_BINDS: dict[str, int] = {"||": 1, "&&": 2} | dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3)
_BINDS |= dict.fromkeys(("+", "-"), 4) | dict.fromkeys(("*", "/", "%"), 5)
"""How closely each operator binds; equals from left to right."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; `kind` is a group of `_TOKEN`, or `end`."""

    kind: str
    text: str
    at: int


def parse(source: str) -> Node:
    """The tree of an expression. Raises CelError."""
    if len(source) > MOST_CHARACTERS:
        raise CelError(0, f"at most {MOST_CHARACTERS:,} characters", f"{len(source):,}", "split the rule in two")
    return _Parser(source).whole()


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, source: str) -> None:
        self._tokens = list(_tokens(source))
        if len(self._tokens) > _MOST_TOKENS:
            raise CelError(
                0, f"at most {_MOST_TOKENS} words and signs", str(len(self._tokens)), "split the rule in two"
            )
        self._next = 0
        self._nesting = 0

    def whole(self) -> Node:
        node = self._expression()
        if self._token.kind != "end":
            raise self._unexpected("an operator or the end of the expression")
        return node

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _take(self, *texts: str) -> Token | None:
        """The next token, if it is one of these marks or words; then it is consumed."""
        token = self._token
        if token.kind == "text" or token.text not in texts:
            return None
        self._next += 1
        return token

    def _need(self, text: str) -> None:
        if self._take(text) is None:
            raise self._unexpected(f"`{text}`")

    def _unexpected(self, expected: str) -> CelError:
        token = self._token
        return CelError(token.at, expected, "the end" if token.kind == "end" else token.text)

    def _expression(self) -> Node:
        self._nesting += 1
        if self._nesting > _MOST_NESTING:
            raise CelError(self._token.at, f"at most {_MOST_NESTING} levels of brackets", "more")
        condition = self._binary(1)
        if mark := self._take("?"):
            yes = self._expression()
            self._need(":")
            condition = Choice(mark.at, condition, yes, self._expression())
        self._nesting -= 1
        return condition

    def _binary(self, weakest: int) -> Node:
        left = self._unary()
        while True:
            token = self._token
            binds = 0 if token.kind == "text" else _BINDS.get(token.text, 0)
            if binds < weakest:
                return left
            self._next += 1
            left = Binary(token.at, token.text, left, self._binary(binds + 1))

    def _unary(self) -> Node:
        marks: list[Token] = []
        while mark := self._take("!", "-"):
            marks.append(mark)
        node = self._member()
        for mark in reversed(marks):
            node = Unary(mark.at, mark.text, node)
        return node

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._take("."):
                token = self._token
                if token.kind != "name":
                    raise self._unexpected("a name")
                self._next += 1
                if self._take("("):
                    node = Function(token.at, token.text, node, self._list(")"))
                else:
                    node = Field(token.at, node, token.text)
            elif mark := self._take("["):
                node = Index(mark.at, node, self._expression())
                self._need("]")
            else:
                return node

    def _primary(self) -> Node:
        token = self._token
        if mark := self._take("("):
            node = self._expression()
            self._need(")")
            return node
        if mark := self._take("["):
            return Items(mark.at, self._list("]"))
        if token.kind == "number":
            self._next += 1
            return Literal(token.at, _number(token))
        if token.kind == "text":
            self._next += 1
            return Literal(token.at, _text(token))
        if token.kind != "name" or token.text in _RESERVED:
            raise self._unexpected("a value")
        self._next += 1
        if token.text in _LITERALS:
            return Literal(token.at, _LITERALS[token.text])
        if self._take("("):
            return Function(token.at, token.text, None, self._list(")"))
        return Name(token.at, token.text)

    def _list(self, end: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self._take(end):
            items.append(self._expression())
            if not self._take(","):
                self._need(end)
                break
        return tuple(items)


def _tokens(source: str) -> Iterator[Token]:
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            near = source[at : at + 10].split()[0]
            if near[0] in "'\"":
                raise CelError(at, "a text with its closing quote", near)
            raise CelError(at, "a name, a number, a text or an operator", near)
        kind = match.lastgroup
        assert kind is not None
        if kind != "space":
            yield Token(kind, match[0], at)
        at = match.end()
    yield Token("end", "", len(source))


def _number(token: Token) -> int | float:
    if token.text.startswith("0x"):
        number = int(token.text, 16)
    elif token.text.isdigit():
        number = int(token.text)
    else:
        return float(token.text)
    if number >= 1 << 63:
        raise CelError(token.at, "a whole number below 2^63", token.text)
    return number


def _text(token: Token) -> str:
    """What a text in quotes says. Of CEL's escapes those are taken that mean the same in Python."""
    if not token.text.startswith("r") and (odd := _ODD_ESCAPE.fullmatch(token.text)) is not None:
        at = token.at + odd.start(1)
        raise CelError(at, "a valid escape", odd[1], r"write \\ for a backslash, or r'…' for a text without escapes")
    value = literal_eval(token.text)
    assert isinstance(value, str)
    return value
