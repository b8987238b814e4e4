"""The configuration of logs: how lines look, which are written, and whether there is one for each request."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from gateway.control.part import Part, Seconds

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class AccessConfig(Part):
    """One line for each request that is over, without prompt, schema or key.

    sample: share of the requests that get one. Those that failed (5xx, a broken answer) always do.
    slow_s: those that took longer get one, too; by default they are requests like any other.
    """

    sample: Share = 1.0
    slow_s: Seconds | None = None


def _unless_off(value: object) -> object:
    return None if value == "off" else value


class LogsConfig(Part):
    """What is written to stderr.

    format: `json`, an object a line; `console`, for people; `auto`: console on a terminal, else json.
    level:  what is less important is left out. Lines of `access` are no matter of it.
    access: `off`, or the lines for requests: `{sample: 0.1, slow_s: 10}`.
    """

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"
    access: Annotated[AccessConfig | None, BeforeValidator(_unless_off)] = None
