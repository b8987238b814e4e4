"""From the `hookcost` part of a configuration to the classifier: price list, policy, and the backend that counts."""

from pathlib import Path
from typing import TYPE_CHECKING

from gateway.control.costmodel import load_cost_model
from gateway.control.document import Document
from gateway.control.problem import Problem
from gateway.hookcost import Classifier
from gateway.hookcost.policy import PolicyError, policy_from
from gateway.hookcost.prices import CostModel, CostModelError

if TYPE_CHECKING:
    from gateway.control.config import Config, HookCostConfig


def build_classifier(config: "Config") -> Classifier:
    """The classifier of a checked configuration."""
    part = config.hookcost
    backend = (part.grammar_backend, part.grammar_backend_version)
    return Classifier(_model(part, config.folder), policy_from(part.refuse), (backend,))


def check_classifier(part: "HookCostConfig", folder: Path, document: Document) -> list[Problem]:
    """What keeps the classifier from being built."""
    problems: list[Problem] = []
    try:
        policy_from(part.refuse)
    except PolicyError as error:
        problems.append(document.problem(("hookcost", "refuse", error.key), "a valid entry", None, str(error)))
    try:
        _model(part, folder).backend(part.grammar_backend, part.grammar_backend_version)
    except (CostModelError, OSError, ValueError) as error:
        key = "cost_model" if part.cost_model else "grammar_backend_version"
        problems.append(document.problem(("hookcost", key), "a usable price list and version", None, str(error)))
    return problems


def _model(part: "HookCostConfig", folder: Path) -> CostModel:
    return load_cost_model(folder / part.cost_model if part.cost_model else None)
