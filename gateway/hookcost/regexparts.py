"""The pieces of a regular expression while it is read: places, parts of a pattern, and groups that are still open.

Owns how the facts about two pieces become those about both. Reads no source: that is regex.py's.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.hookcost.charclass import CharClass


class Position(NamedTuple):
    """Characters that one place of the pattern takes.

    copies: how many states a fully unrolled automaton has for it, the product of the counted repetitions around it.
    repeat: the largest upper bound of a counted repetition around it that has one; 1 without any.
    loop:   an unbounded repetition stands around it.
    plus:   that repetition asks for at least one, so that a first state stands before the loop.
    fenced: a character that stands for itself follows.
    fence:  what follows, where it takes none of these characters and must come.
    """

    chars: CharClass
    copies: int = 1
    repeat: int = 1
    loop: bool = False
    plus: bool = False
    fenced: bool = False
    fence: CharClass | None = None


@dataclass(slots=True)
class Part:
    """A parsed piece: the places in it, whether it can match nothing, and how deep its unbounded loops nest.

    head:      the characters it may begin with, None if that is nothing.
    tail_loop: the characters of an unbounded loop it may end with.
    tail:      those of any repetition of variable length it may end with.
    blurred:   a repetition in it may go over into what follows it there.
    """

    positions: list[Position]
    nullable: bool
    loops: int = 0
    head: CharClass | None = None
    tail_loop: CharClass | None = None
    literals: int = 0
    tail: CharClass | None = None
    blurred: bool = False

    @property
    def chars(self) -> CharClass:
        """All that it may take."""
        chars = self.head or CharClass(0)
        for position in self.positions:
            chars = chars | position.chars
        return chars


@dataclass(slots=True)
class Group:
    """A group that is still open: the alternatives read so far, and the one being read."""

    start: int
    look: bool = False
    done: Part | None = None
    reading: Part = field(default_factory=lambda: Part([], nullable=True))
    after_place: bool = False
    """What was read last has places, not only characters that stand for themselves."""

    def append(self, part: Part) -> bool:
        """Puts `part` behind what is being read; True where two unbounded loops over common characters meet."""
        whole = self.reading
        meets = (
            whole.tail_loop is not None
            and part.head is not None
            and part.loops > 0
            and whole.tail_loop.mask & part.head.mask != 0
        )
        if whole.nullable:
            whole.head = _either(whole.head, part.head)
        whole.blurred = whole.blurred or part.blurred or meet(whole.tail, part.head)
        if self.after_place and not part.nullable:
            last = whole.positions[-1]
            fence = None if meet(last.chars, part.head) else part.head
            fenced = last.fenced or not part.positions
            whole.positions[-1] = Position(last.chars, last.copies, last.repeat, last.loop, last.plus, fenced, fence)
        elif part.literals and not part.positions and whole.positions:
            whole.positions[-1] = Position(*whole.positions[-1][:5], True, whole.positions[-1].fence)
        self.after_place = bool(part.positions)
        whole.positions.extend(part.positions)
        whole.literals += part.literals
        if part.nullable:
            whole.tail_loop = _either(whole.tail_loop, part.tail_loop)
            whole.tail = _either(whole.tail, part.tail)
        else:
            whole.tail_loop, whole.tail = part.tail_loop, part.tail
        whole.nullable = whole.nullable and part.nullable
        whole.loops = max(whole.loops, part.loops)
        return meets

    def next_branch(self) -> None:
        """Another alternative begins."""
        self.done = self.close()
        self.reading = Part([], nullable=True)
        self.after_place = False

    def close(self) -> Part:
        """All alternatives as one piece."""
        if self.done is None:
            return self.reading
        self.done.positions.extend(self.reading.positions)
        return Part(
            self.done.positions,
            self.done.nullable or self.reading.nullable,
            max(self.done.loops, self.reading.loops),
            _either(self.done.head, self.reading.head),
            _either(self.done.tail_loop, self.reading.tail_loop),
            self.done.literals + self.reading.literals,
            _either(self.done.tail, self.reading.tail),
            self.done.blurred or self.reading.blurred,
        )


def _either(one: CharClass | None, other: CharClass | None) -> CharClass | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def meet(one: CharClass | None, other: CharClass | None) -> bool:
    """Whether two classes have ASCII characters in common, or both have others."""
    if one is None or other is None:
        return False
    return one.mask & other.mask != 0 or (one.beyond > 0 and other.beyond > 0)
