"""A classifier on the shipped price list, and shorthand for asking it."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from gateway.hookcost import Classification, Classifier, HookCost
from gateway.hookcost.prices import CostModel, cost_model_from

REPOSITORY = Path(__file__).resolve().parents[3]
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="session")
def model() -> CostModel:
    return cost_model_from(yaml.safe_load((REPOSITORY / "config" / "cost_model.yaml").read_text()))


@pytest.fixture(scope="session")
def classifier(model: CostModel) -> Classifier:
    return Classifier(model)


class Ask:
    """Classifies chat bodies."""

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier

    def __call__(self, **body: Any) -> Classification:
        return self._classifier.classify(CHAT, orjson.dumps({"messages": [], **body}))

    def cost(self, backend: str, **body: Any) -> HookCost:
        seen = self(**body)
        assert seen.refusal is None, seen.refusal
        return seen.by_backend[backend]

    def schema(self, schema: object) -> Classification:
        return self(
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": schema},
            }
        )


@pytest.fixture
def ask(classifier: Classifier) -> Ask:
    return Ask(classifier)
