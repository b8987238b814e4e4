"""A tokenizer as the bytes of its tokens, read from its own file. Knows no grammar backend."""

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

GROUPS = ("digit", "lower", "upper", "space", "punct", "other")
"""The character groups of the price list, in the order in which their names are joined."""


class TokenizerError(ValueError):
    """A file that is no tokenizer of a known kind; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens by id. `eos` is the id that ends a generation."""

    token_bytes: list[bytes]
    eos: int

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.token_bytes)

    def shares(self) -> dict[str, float]:
        """For each set of character groups, joined by `+`, the share of tokens made of exactly these."""
        counts: dict[str, int] = {}
        for token in self.token_bytes:
            name = "+".join(group for group in GROUPS if group in {_group(byte) for byte in token})
            if name:
                counts[name] = counts.get(name, 0) + 1
        return {name: count / self.size for name, count in sorted(counts.items(), key=lambda item: -item[1])}


def read_tokens(path: Path) -> Tokens:
    """Tokens from a `.tiktoken` rank file, a Hugging Face `tokenizer.json`, or a folder that holds one.

    Raises:
        TokenizerError: the file is neither.
        OSError: it can't be read.
    """
    if path.is_dir():
        path = path / "tokenizer.json"
    raw = path.read_bytes()
    if path.suffix == ".json":
        return _from_json(path, raw)
    try:
        tokens = [base64.b64decode(line.split()[0], validate=True) for line in raw.splitlines() if line.strip()]
    except (ValueError, IndexError) as error:
        raise TokenizerError(f"{path}: neither tokenizer.json nor a tiktoken rank file ({error})") from None
    return Tokens([*tokens, b"<|end|>"], len(tokens))


def _from_json(path: Path, raw: bytes) -> Tokens:
    try:
        data = json.loads(raw)
        vocabulary = data["model"]["vocab"]
    except (ValueError, KeyError, TypeError) as error:
        raise TokenizerError(f"{path}: no tokenizer.json with `model.vocab` ({error})") from None
    pairs = (
        vocabulary.items() if isinstance(vocabulary, dict) else ((piece, i) for i, (piece, _) in enumerate(vocabulary))
    )
    tokens: dict[int, bytes] = {int(token_id): spelled(piece) for piece, token_id in pairs}
    eos = -1
    for added in data.get("added_tokens", []):
        tokens[int(added["id"])] = str(added["content"]).encode()
        if eos < 0 and any(mark in added["content"] for mark in ("im_end", "eot", "</s>", "endoftext", "end_of_text")):
            eos = int(added["id"])
    size = max(tokens) + 1
    return Tokens([tokens.get(i, b"<|unused|>") for i in range(size)], eos if eos >= 0 else size - 1)


def spelled(piece: str) -> bytes:
    """The bytes of a piece as Hugging Face spells it: byte-level BPE, or SentencePiece with `▁` and `<0x0A>`."""
    if piece.startswith("<0x") and piece.endswith(">") and len(piece) == 6:
        return bytes([int(piece[3:5], 16)])
    if all(character in _BYTE_OF for character in piece):
        return bytes(_BYTE_OF[character] for character in piece)
    return piece.replace("\u2581", " ").encode()


def _byte_level() -> Iterator[tuple[str, int]]:
    """The alphabet of byte-level BPE (GPT-2): printable bytes as themselves, the others moved up from 256."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = 0
    for byte in range(256):
        if byte in printable:
            yield chr(byte), byte
        else:
            yield chr(256 + moved), byte
            moved += 1


_BYTE_OF = dict(_byte_level())


def _group(byte: int) -> str:
    character = chr(byte)
    if byte >= 127 or byte < 32:
        return "other"
    if character.isdigit():
        return "digit"
    if character.islower():
        return "lower"
    if character.isupper():
        return "upper"
    return "space" if character == " " else "punct"


def longest_first(tokens: Iterable[bytes]) -> dict[bytes, int]:
    """Ids by bytes, the first of equal ones."""
    ids: dict[bytes, int] = {}
    for token_id, token in enumerate(tokens):
        ids.setdefault(token, token_id)
    return ids
