"""`python -m replica.calibrate`: measure grammars on this machine and write one NDJSON line each.

The first line holds the tokenizer's size and make-up; `steplane calibrate` fits the price list to the rest.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from rich.progress import track

from replica.calibrate.measure import backend_of, measure
from replica.calibrate.synthetic import doses
from replica.calibrate.tokens import TokenizerError, read_tokens


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; 2 when something given to it can't be used."""
    parser = argparse.ArgumentParser(prog="python -m replica.calibrate", description="Measure what grammars cost here.")
    parser.add_argument("--grammar-backend", choices=("llguidance", "xgrammar"), required=True)
    parser.add_argument(
        "--tokenizer", type=Path, required=True, help="tokenizer.json, a folder with one, or a .tiktoken file"
    )
    parser.add_argument("--schemas", type=Path, help="folder of *.json, each one JSON schema of yours")
    parser.add_argument("--out", type=Path, required=True, help="where the measurements go (NDJSON)")
    options = parser.parse_args(arguments)
    try:
        tokens = read_tokens(options.tokenizer)
        backend = backend_of(options.grammar_backend, tokens)
        work = [*doses(), *_given(options.schemas)]
        with options.out.open("wb") as out:
            head = {"backend": options.grammar_backend, "size": tokens.size, "shares": tokens.shares()}
            out.write(orjson.dumps(head) + b"\n")
            for name, schema in track(work, description="measuring", disable=not sys.stderr.isatty()):
                out.write(measure(backend, tokens, name, schema).line())
                out.flush()
    except (TokenizerError, OSError, ImportError, ValueError) as error:
        sys.stderr.write(f"calibrate: {error}\n")
        return 2
    return 0


def _given(folder: Path | None) -> Iterator[tuple[str, Any]]:
    """The user's own schemas. Raises ValueError with the file's name for one that is no JSON."""
    if folder is None:
        return
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ValueError(f"no *.json in {folder}")
    for file in files:
        try:
            yield f"given/{file.name}", orjson.loads(file.read_bytes())
        except orjson.JSONDecodeError as error:
            raise ValueError(f"{file} is not JSON: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
