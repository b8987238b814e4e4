"""Reads the cost model from its file. What the numbers mean is `gateway.hookcost`'s to know."""

from pathlib import Path

import yaml

from gateway.control.shipped import shipped_file
from gateway.hookcost.prices import CostModel, CostModelError, cost_model_from


def load_cost_model(path: Path | None = None) -> CostModel:
    """The cost model in `path`, or the one that comes with Steplane.

    Raises:
        CostModelError: the file is no cost model; the message names the file and the key.
        OSError: it can't be read.
    """
    file = path or shipped_file("cost_model.yaml")
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CostModelError(str(file), f"not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise CostModelError(str(file), "a mapping was expected")
    try:
        return cost_model_from(data)
    except CostModelError as error:
        raise CostModelError(str(file), str(error)) from None
