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
    model = _model(part, config.folder)
    backends = _backends(config)
    if any(pool.capabilities.from_server for pool in config.pools.values()):
        priced = {name for name, _ in backends}
        backends += tuple([(name, None) for name in model.backends if name not in priced])
    return Classifier(model, policy_from(part.refuse), backends)


def check_classifier(config: "Config", folder: Path, document: Document) -> list[Problem]:
    """What keeps the classifier from being built."""
    part = config.hookcost
    problems: list[Problem] = []
    try:
        policy_from(part.refuse)
    except PolicyError as error:
        problems.append(document.problem(("hookcost", "refuse", error.key), "a valid entry", None, str(error)))
    try:
        model = _model(part, folder)
        for name, version in _backends(config):
            model.backend(name, version)
    except (CostModelError, OSError, ValueError) as error:
        key = "cost_model" if part.cost_model else "grammar_backend_version"
        problems.append(document.problem(("hookcost", key), "a usable price list and version", None, str(error)))
    return problems


def _backends(config: "Config") -> tuple[tuple[str, str | None], ...]:
    """All that grammars are priced for: what counts where nothing else is said, and what pools say of their engines."""
    part = config.hookcost
    usual = (part.grammar_backend, part.grammar_backend_version)
    named = [pool.backend for pool in config.pools.values() if pool.backend is not None]
    return tuple(dict.fromkeys([usual, *named]))


def _model(part: "HookCostConfig", folder: Path) -> CostModel:
    return load_cost_model(folder / part.cost_model if part.cost_model else None)
