"""How long prompts and replies are: distributions of numbers of tokens."""

import math
import random
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Tokens = Annotated[int, Field(ge=1, le=1_000_000)]


class Lognormal(BaseModel):
    """Most are near `median`; `sigma` is the standard deviation of the logarithm; none is above `most`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    median: _Tokens
    sigma: Annotated[float, Field(gt=0, le=5)] = 0.8
    most: _Tokens = 32_768


class Uniform(BaseModel):
    """All numbers from `least` to `most` are equally likely."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    least: _Tokens
    most: _Tokens

    @model_validator(mode="after")
    def _ordered(self) -> "Uniform":
        if self.least > self.most:
            raise ValueError("least is above most")
        return self


Length = _Tokens | Lognormal | Uniform
"""A number of tokens, always the same or drawn anew for each request."""


def draw(length: Length, chance: random.Random) -> int:
    """The next number of tokens."""
    match length:
        case Lognormal():
            return max(1, min(length.most, round(chance.lognormvariate(math.log(length.median), length.sigma))))
        case Uniform():
            return chance.randint(length.least, length.most)
        case _:
            return length
