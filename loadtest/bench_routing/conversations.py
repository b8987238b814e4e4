"""Conversations that grow: applications with a system prompt each, users that come back with what was said so far."""

import random
from collections.abc import Iterator, Sequence

REPLY = "That depends on what you want to do with it; tell me a little more, and I shall look it up for you. " * 3
_VOCABULARY = "the of and a to in is you that it he was for on are as with his they at be this have from or one had by"
_WORDS = _VOCABULARY.split()
_APPLICATIONS = 12
_OPEN = 48
"""Conversations that go on at the same time."""
_TURNS = (2, 9)
_SYSTEM_WORDS = (150, 900)
_TURN_WORDS = (10, 120)

Messages = list[dict[str, str]]


def trace(requests: int, seed: int = 5) -> Iterator[Messages]:
    """The messages of so many requests, in the order in which they are sent."""
    chance = random.Random(seed)
    systems = [_text(chance, *_SYSTEM_WORDS) for _ in range(_APPLICATIONS)]
    popularity = [1.0 / (at + 1) for at in range(_APPLICATIONS)]
    going: list[tuple[Messages, int]] = []
    for _ in range(requests):
        while len(going) < _OPEN:
            system = chance.choices(systems, popularity)[0]
            going.append(([{"role": "system", "content": system}], chance.randint(*_TURNS)))
        at = chance.randrange(len(going))
        messages, turns = going.pop(at)
        messages = [*messages, {"role": "user", "content": _text(chance, *_TURN_WORDS)}]
        yield messages
        if turns > 1:
            going.append(([*messages, {"role": "assistant", "content": REPLY}], turns - 1))


def prompt_of(messages: Sequence[dict[str, str]]) -> str:
    """The text that a chat template makes of messages."""
    return "".join(f"<|{message['role']}|>{message['content']}\n" for message in messages)


def _text(chance: random.Random, least: int, most: int) -> str:
    return " ".join(chance.choices(_WORDS, k=chance.randint(least, most)))
