"""Reads the cost model from its file, and writes one. What the numbers mean is `gateway.hookcost`'s to know."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gateway.control.shipped import shipped_file
from gateway.hookcost.prices import CostModel, CostModelError, cost_model_from


def load_cost_model(path: Path | None = None) -> CostModel:
    """The cost model in `path`, or the one that comes with Steplane.

    Raises:
        CostModelError: the file is no cost model; the message names the file and the key.
        OSError: it can't be read.
    """
    return read_cost_model(path)[1]


def read_cost_model(path: Path | None = None) -> tuple[dict[str, Any], CostModel]:
    """The same with the plain data of the file before it, for who writes a new one."""
    file = path or shipped_file("cost_model.yaml")
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CostModelError(str(file), f"not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise CostModelError(str(file), "a mapping was expected")
    try:
        return data, cost_model_from(data)
    except CostModelError as error:
        raise CostModelError(str(file), str(error)) from None


def write_cost_model(path: Path, data: Mapping[str, Any], origin: str) -> None:
    """Writes a cost model, all of it or nothing. `origin` says in its first line where the numbers come from.

    Raises:
        OSError: it can't be written.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(f"# {origin}\n{yaml.safe_dump(dict(data), sort_keys=False, width=120)}", encoding="utf-8")
    draft.replace(path)
