"""The sampler: one token a sequence a step, from pseudo-logits, under a grammar's mask where there is one.

Deterministic: a token depends on the sequence's key, its position and its own past, never on the batch. Plain text
comes from word lists in about a microsecond. Under a mask a few likely tokens are tried against it first, chosen so
that JSON closes early; where none is allowed, the exact best of the allowed tokens is taken.
This stands for the GPU's part of a step. The engine times it apart from the hooks.
"""

from collections.abc import Iterator

import numpy as np

from replica.simulator.logits import PseudoLogits, TopRow, mix, sequence_key
from replica.simulator.mask import Mask
from replica.simulator.sequence import Sequence
from replica.simulator.vocabulary import Vocabulary

# Constrained replies are urged to close from the start, and strongly beyond this many tokens.
_CLOSE_AFTER = 48
_CLOSE_SPREAD = 48


class JsonPosition:
    """Where a JSON reply stands, as far as choosing the next token well needs it: in a string or not, and how long."""

    __slots__ = ("_escaped", "in_string", "number_tokens", "string_tokens")

    def __init__(self) -> None:
        self.in_string = False
        self.string_tokens = 0
        self.number_tokens = 0
        self._escaped = False

    def advance(self, token: bytes) -> None:
        if self.in_string:
            self.string_tokens += 1
            self.number_tokens = 0
        elif token.isdigit():
            self.number_tokens += 1
        else:
            self.number_tokens = 0
        if b'"' not in token and b"\\" not in token and not self._escaped:
            return
        for byte in token:
            if self._escaped:
                self._escaped = False
            elif byte == 0x5C and self.in_string:
                self._escaped = True
            elif byte == 0x22:
                self.in_string = not self.in_string
                self.string_tokens = 0


class Sampler:
    """Chooses tokens for one replica. Used by the step thread only."""

    def __init__(self, vocabulary: Vocabulary, seed: int, reply_tokens: tuple[int, int]) -> None:
        self._vocabulary = vocabulary
        self._seed = seed
        self._reply_tokens = reply_tokens
        self.logits = PseudoLogits(vocabulary.size, seed)
        self._eos = vocabulary.eos
        self._words = vocabulary.spaced_words
        self._bare = vocabulary.bare_words
        self._openers = vocabulary.openers
        self._plainness = vocabulary.plainness
        one = vocabulary.id_of
        self._quote, self._brace, self._bracket = one('"'), one("}"), one("]")
        self._open_brace, self._open_bracket, self._comma, self._colon = one("{"), one("["), one(","), one(":")
        self._true, self._false, self._null, self._minus = one("true"), one("false"), one("null"), one("-")
        self._digits = tuple(one(d) for d in "1234567890")
        self._letters = tuple(one(c) for c in "abcdefghijklmnopqrstuvwxyz")
        self._marks = tuple(one(c) for c in "@.:/-_+TZ#")
        self._pauses = (one(","), one("."), one(","), one("."), one(";"), one(" and"), one(" or"), one(" but"))

    def prepare(self, sequence: Sequence, choice: int) -> None:
        """Set the key, the natural length and the sampler's own state of a new sequence. Thread-safe."""
        params = sequence.params
        seed = self._seed if params.seed is None else params.seed
        sequence.key = sequence_key(seed, sequence.prompt, choice)
        low, high = self._reply_tokens
        sequence.reply_length = low + mix(sequence.key, -1) % (high - low + 1)
        if params.grammar is not None and params.grammar.kind == "json":
            sequence.sampler_state = JsonPosition()

    def plain(self, sequence: Sequence) -> int:
        """The next token of unconstrained text."""
        position = len(sequence.output)
        h = mix(sequence.key, position)
        params = sequence.params
        if params.logit_bias:
            return self._biased(sequence, position, h)
        if position >= sequence.reply_length and not params.ignore_eos and position >= params.min_new_tokens:
            return self._eos
        return self._word(position, h)

    def masked(self, sequence: Sequence, mask: Mask) -> int:
        """The next token among those that the mask allows; -1 if there is none."""
        position = len(sequence.output)
        h = mix(sequence.key, position)
        state: JsonPosition | None = sequence.sampler_state
        candidates = self._text(sequence, position, h) if state is None else self._json(sequence, state, position, h)
        bits = mask.bits
        for token in candidates:
            if bits[token >> 5] >> (token & 31) & 1:
                break
        else:
            token = self._exact(sequence, position, mask)
        if state is not None and token >= 0:
            state.advance(self._vocabulary.token_bytes[token])
        return token

    def top(self, sequence: Sequence, chosen: int, k: int, mask: Mask | None) -> TopRow:
        """Log probabilities of the token just chosen for the sequence, and of the k likeliest."""
        position = len(sequence.output)
        if mask is None:
            return self.logits.top(sequence.key, position, chosen, k)
        return self.logits.top_allowed(sequence.key, position, chosen, k, mask.tokens())

    def _word(self, position: int, h: int) -> int:
        if position == 0:
            return self._openers[h % len(self._openers)]
        # A pause every so often, never two in a row: text that looks like text.
        if position % 9 == 8:
            return self._pauses[h & 7]
        return self._words[h % len(self._words)]

    def _biased(self, sequence: Sequence, position: int, h: int) -> int:
        """The exact way, for `logit_bias`: a dense row, the bias added, the largest entry."""
        row = self.logits.row(sequence.key, position).copy()
        token = self._word(position, h)
        row[token] = row.max() + 1.0
        params = sequence.params
        if params.ignore_eos or position < params.min_new_tokens:
            row[self._eos] = -np.inf
        elif position >= sequence.reply_length:
            row[self._eos] = row.max() + 1.0
        for biased, bias in params.logit_bias.items():
            row[biased] += bias
        return int(row.argmax())

    def _json(self, sequence: Sequence, state: JsonPosition, position: int, h: int) -> Iterator[int]:
        """Tokens to try in a JSON reply, in order."""
        limit = min(_CLOSE_AFTER + sequence.key % _CLOSE_SPREAD, max(8, sequence.max_new_tokens // 3))
        late = position >= limit
        draw = (h >> 40) / (1 << 24)
        if state.in_string:
            yield from self._in_string(state.string_tokens, late or draw < 0.15 * state.string_tokens, h)
            return
        digit = self._digits[h % (10 if state.number_tokens else 9)]
        yield self._eos
        if late or state.number_tokens > 2 or draw < 0.25 + 0.5 * position / limit:
            yield from (self._brace, self._bracket)
            if late:
                yield self._null
            yield from (self._comma, self._quote, digit, self._colon, self._true, self._false)
        else:
            values = (self._quote, digit, self._true if h & 8 else self._false)
            turn = h % 3
            yield from values[turn:]
            yield from values[:turn]
            yield from (self._comma, self._colon)
        yield from (self._open_brace, self._open_bracket, self._brace, self._bracket, self._null, self._minus)

    def _in_string(self, length: int, close: bool, h: int) -> Iterator[int]:
        if close:
            yield self._quote
        words = self._words if length else self._bare
        if length >= 8 and h & 1:
            # A long string that may not close needs something else now and then: an address its @, a URL its dots.
            yield self._marks[(h >> 1) % len(self._marks)]
        for i in range(4):
            yield words[(h >> (8 * i)) % len(words)]
        yield self._bare[(h >> 5) % len(self._bare)]
        yield self._letters[h % 26]
        yield self._digits[h % 10]
        yield self._quote

    def _text(self, sequence: Sequence, position: int, h: int) -> Iterator[int]:
        """Tokens to try under a regex, an EBNF or a structural tag, in order."""
        if position >= sequence.reply_length and not sequence.params.ignore_eos:
            yield self._eos
        for i in range(4):
            yield self._words[(h >> (8 * i)) % len(self._words)]
        yield self._bare[(h >> 5) % len(self._bare)]
        yield self._letters[h % 26]
        yield self._digits[h % 10]

    def _exact(self, sequence: Sequence, position: int, mask: Mask) -> int:
        """The best allowed token by logit and plainness; the end of text only where nothing else is allowed."""
        allowed = mask.tokens()
        if len(allowed) == 0:
            return -1
        scores = self.logits.row(sequence.key, position)[allowed] + self._plainness[allowed] * np.float32(2.0)
        scores[allowed >= self._vocabulary.first_special] = -1e9
        return int(allowed[int(scores.argmax())])
