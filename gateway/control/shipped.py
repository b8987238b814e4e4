"""Where the files are that come with Steplane: the embedded configuration, the examples, the cost model.

In a checkout they stand in `config/` beside the package; in an installed wheel inside it, as `gateway/shipped/`.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_IN_WHEEL = _PACKAGE / "shipped"


def in_checkout() -> bool:
    """Whether this Steplane runs from its source tree."""
    return not _IN_WHEEL.is_dir()


def shipped_file(name: str) -> Path:
    """The path of a shipped file, as in `shipped_file("embedded.yaml")`. Raises FileNotFoundError."""
    path = (_PACKAGE.parent / "config" if in_checkout() else _IN_WHEEL) / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: this installation of steplane is incomplete, install it again")
    return path
