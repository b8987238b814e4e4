"""What every part of the configuration is made of: strict, frozen models and the kinds of numbers and names."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gateway.control.validation import NAME_PATTERN

# Names become header values and metric labels.
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Micros = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Millis = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Limit = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1)]


class Part(BaseModel):
    """A section: no unknown keys, no conversions, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
