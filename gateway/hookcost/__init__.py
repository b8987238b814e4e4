"""Meaning: from a request's path and body to features, predicted hook cost and signature.

Pure: no I/O, no clock, nothing of ours imported. The way in is `Classifier`.
"""

from gateway.hookcost.classification import Classification, Refusal
from gateway.hookcost.classify import Classifier, Turns, classify
from gateway.hookcost.cost import HookCost
from gateway.hookcost.features import Api, Features, Grammar
from gateway.hookcost.paths import api_of

__all__ = [
    "Api",
    "Classification",
    "Classifier",
    "Features",
    "Grammar",
    "HookCost",
    "Refusal",
    "Turns",
    "api_of",
    "classify",
]
