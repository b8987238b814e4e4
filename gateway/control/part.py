"""What every part of the configuration is made of: strict, frozen models and kinds of numbers, names and addresses."""

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from gateway.control.network import (
    Address,
    AddressError,
    Origin,
    UnixPath,
    parse_address,
    parse_endpoint,
    parse_origin,
)
from gateway.control.validation import NAME_PATTERN, custom_error

_Parsed = Address | UnixPath | Origin


def checked_by(parse: Callable[[object], _Parsed]) -> Callable[[object], _Parsed]:
    """For validators: what `parse` makes of a text, or what was parsed already."""

    def checked(value: object) -> _Parsed:
        if isinstance(value, _Parsed):
            return value
        try:
            return parse(value)
        except AddressError as error:
            raise custom_error(error.expected, error.hint) from None

    return checked


# Names become header values and metric labels.
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Micros = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Millis = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Limit = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1)]
HostPort = Annotated[Address, BeforeValidator(checked_by(parse_address))]
Endpoint = Annotated[Address | UnixPath, BeforeValidator(checked_by(parse_endpoint))]
ReplicaUrl = Annotated[Origin, BeforeValidator(checked_by(parse_origin))]


class Part(BaseModel):
    """A section: no unknown keys, no conversions, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
