"""What a tenant may do: the models and pools that it may use, how soon its turn comes, and its limits."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import translate

from gateway.tenants.allowance import Limits


@dataclass(frozen=True, slots=True)
class Profile:
    """The rights of a tenant.

    priority: of its requests where requests wait; higher goes first.
    models:   patterns of model names, in which `*` and `?` are wildcards; None: any.
    pools:    names of pools; None: any. What is quarantined goes to quarantine all the same.
    """

    limits: Limits = field(default_factory=dict)
    priority: int = 0
    models: re.Pattern[str] | None = None
    pools: frozenset[str] | None = None

    def may_use(self, model: str | None) -> bool:
        """Whether it may ask for `model`; a request that names none gets what the pool serves."""
        return self.models is None or model is None or self.models.match(model) is not None


def patterns(models: Iterable[str]) -> re.Pattern[str]:
    """One expression for several patterns of model names."""
    return re.compile("|".join(translate(each) for each in models) or r"(?!)")
