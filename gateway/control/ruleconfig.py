"""The configuration of one rule: whom it takes, when, where to, and what it does; docs/rules.md explains each key.

The conditions themselves are checked by gateway/routing, which compiles them.
"""

import re
import time
from collections.abc import Callable
from datetime import time as time_of_day
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from gateway.control.actionconfig import ActionsConfig, RefuseConfig
from gateway.control.part import Name, Part, Seconds
from gateway.control.retryconfig import HedgeConfig, RetryConfig
from gateway.control.validation import custom_error
from gateway.control.whenschema import when_schema
from gateway.routing.rule import Rule, compile_rule
from gateway.routing.schedule import DAYS, Hours, Schedule

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_STICKY = re.compile(r"[A-Za-z0-9-]{1,64}")


def _when(value: object) -> object:
    if not isinstance(value, dict | str):
        raise custom_error("a mapping of conditions, or an expression in CEL")
    return value


def _time(value: object) -> object:
    if value != "24:00" and not (isinstance(value, str) and _TIME.fullmatch(value)):
        raise custom_error('a time from "00:00" to "24:00", in quotes')
    return value


def _days(value: object) -> object:
    days = [value] if isinstance(value, str) else value
    if not isinstance(days, list) or not days:
        raise custom_error("days of the week, as in [mon, tue] or mon-fri")
    return sorted({day for each in days for day in _range(each)}, key=DAYS.index)


def _range(value: object) -> tuple[str, ...]:
    first, dash, last = str(value).partition("-")
    if first not in DAYS or (dash and last not in DAYS):
        raise custom_error(f"days of {', '.join(DAYS)}, or a range such as mon-fri")
    start, end = DAYS.index(first), DAYS.index(last) if dash else DAYS.index(first)
    return DAYS[start : end + 1] if start <= end else DAYS[start:] + DAYS[: end + 1]


def _zone(value: object) -> object:
    try:
        ZoneInfo(value if isinstance(value, str) else "")
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise custom_error("a time zone, as in UTC or Europe/Berlin") from None
    return value


def _sticky(value: object) -> object:
    if not isinstance(value, str) or not _STICKY.fullmatch(value):
        raise custom_error("`tenant`, or the name of a header")
    return value.lower()


TimeOfDay = Annotated[str, BeforeValidator(_time)]


class ScheduleConfig(Part):
    """When a rule is in force: from a time of day until another one, on some days of the week.

    days:     those on which it begins; past midnight where `to` is not after `from`.
    timezone: by its name in the IANA database; summer time is that of the place.
    """

    days: Annotated[list[str], BeforeValidator(_days)] = Field(default_factory=lambda: list(DAYS))
    from_: Annotated[TimeOfDay, Field(alias="from")] = "00:00"
    to: TimeOfDay = "24:00"
    timezone: Annotated[str, BeforeValidator(_zone)] = "UTC"

    def schedule(self, wall: Callable[[], float]) -> Schedule:
        """As routing takes it. `wall` gives seconds since the epoch."""
        start, end = (time_of_day.fromisoformat(_midnight(text)) for text in (self.from_, self.to))
        days = frozenset(DAYS.index(day) for day in self.days)
        return Schedule(Hours(ZoneInfo(self.timezone), days, start, end), wall)


def _midnight(text: str) -> str:
    return "00:00" if text == "24:00" else text


class RuleConfig(ActionsConfig):
    """Requests for which all of `when` holds go to `pool`; the first rule that takes a request decides.

    when:      conditions as plain keys (gateway/routing/variables.py lists them), `cel` among them or alone.
    pool:      who takes them; or reject: the answer they get; or
    cheapest_backend: pools of which the one takes them whose grammar backend does so at the least predicted cost.
    fallbacks: pools that stand in for it, in this order, while it has no available replica; then where it spills to.
    weight:    percent of what matches that the rule takes; the rest is left to the rules behind it.
    sticky:    `tenant` or the name of a header: whoever has the same is always taken, or never.
    schedule:  when the rule is in force.
    retry, hedge, deadline_s: what they say goes before what the pool says, key by key.
    """

    name: Name
    when: Annotated[Any, BeforeValidator(_when), WithJsonSchema(when_schema())] = Field(default_factory=dict)
    pool: str | None = None
    cheapest_backend: Annotated[list[str], Field(min_length=2)] | None = None
    fallbacks: list[str] = Field(default_factory=list)
    reject: RefuseConfig | None = None
    weight: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 100
    sticky: Annotated[str | None, BeforeValidator(_sticky)] = None
    schedule: ScheduleConfig | None = None
    retry: RetryConfig | None = None
    hedge: HedgeConfig | None = None
    deadline_s: Seconds | None = None

    @model_validator(mode="after")
    def _one_end(self) -> "RuleConfig":
        if [self.pool is None, self.cheapest_backend is None, self.reject is None].count(False) != 1:
            raise custom_error("a rule with `pool`, with `cheapest_backend`, or with `reject`")
        if self.reject is not None and (self.fallbacks or self.actions() is not None):
            raise custom_error("a rule with `reject` and nothing that is done on the way to a pool")
        return self

    def compiled(self, wall: Callable[[], float] = time.time) -> Rule:
        """As routing takes it. Raises ConditionError."""
        cheapest = tuple(self.cheapest_backend or ())
        return compile_rule(
            self.name,
            cheapest[0] if cheapest else self.pool,
            self.when,
            schedule=None if self.schedule is None else self.schedule.schedule(wall),
            weight=self.weight,
            sticky=self.sticky,
            fallbacks=tuple(self.fallbacks),
            actions=self.actions(),
            refuse=None if self.reject is None else self.reject.refuse(),
            cheapest=cheapest,
        )
