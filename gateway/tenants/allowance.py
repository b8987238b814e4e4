"""What one tenant may use up: requests, tokens and hook time, each by a bucket of its own.

Requests are paid when they come. Tokens and hook time are known only afterwards: a request is let in while nothing is
owed for more than its estimate, and what it really cost is charged as that becomes known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gateway.tenants.bucket import Bucket


class Resource(StrEnum):
    """What is limited."""

    requests = "requests"
    tokens = "tokens"
    hook_us = "hook_us"


@dataclass(frozen=True, slots=True)
class Rate:
    """So much a second, and at most `burst` at once."""

    per_s: float
    burst: float


Limits = Mapping[Resource, Rate]
"""A resource that is not named is not limited."""


@dataclass(frozen=True, slots=True)
class Excess:
    """A request that has to wait: for what, and how long until it may come again."""

    resource: Resource
    retry_after_s: float


class Allowance:
    """The buckets of one tenant."""

    __slots__ = ("_buckets",)

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._buckets = {resource: Bucket(rate.per_s, rate.burst, now_s) for resource, rate in limits.items()}

    def limits(self, resource: Resource) -> bool:
        """Whether `resource` is limited: what is not need not be measured."""
        return resource in self._buckets

    def take(self, tokens: float, hook_us: float, now_s: float) -> Excess | None:
        """Let a request in and charge what it is expected to cost, or charge nothing and say what it has to wait for.

        If it lacks several things, the one that takes longest is named.
        """
        wanted = {Resource.requests: 1.0, Resource.tokens: tokens, Resource.hook_us: hook_us}
        worst: Excess | None = None
        for resource, bucket in self._buckets.items():
            wait_s = bucket.wait_s(wanted[resource], now_s)
            if wait_s > 0.0 and (worst is None or wait_s > worst.retry_after_s):
                worst = Excess(resource, wait_s)
        if worst is None:
            self.spend(wanted, now_s)
        return worst

    def spend(self, amounts: Mapping[Resource, float], now_s: float) -> None:
        """Charge what is known to have been used, here or at another gateway. Negative: give back."""
        for resource, amount in amounts.items():
            bucket = self._buckets.get(resource)
            if bucket is not None:
                bucket.spend(amount, now_s)

    def levels(self, now_s: float) -> dict[Resource, float]:
        """What is left of each; negative: owed."""
        return {resource: bucket.level(now_s) for resource, bucket in self._buckets.items()}

    def header_lines(self, now_s: float) -> bytes:
        """The usual `x-ratelimit-*` lines of a response, each ended by CRLF: limit, what remains, time until full."""
        lines = b""
        for resource, bucket in self._buckets.items():
            name = resource.value.replace("_", "-").encode()
            remaining = max(0, int(bucket.level(now_s)))
            lines += b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %b\r\n" % (
                name,
                int(bucket.burst),
                name,
                remaining,
                name,
                _duration(bucket.full_in_s(now_s)),
            )
        return lines

    def reconfigure(self, limits: Limits, now_s: float) -> None:
        """Take other limits; what is owed stays owed."""
        for resource in [resource for resource in self._buckets if resource not in limits]:
            del self._buckets[resource]
        for resource, rate in limits.items():
            bucket = self._buckets.get(resource)
            if bucket is None:
                self._buckets[resource] = Bucket(rate.per_s, rate.burst, now_s)
            else:
                bucket.reconfigure(rate.per_s, rate.burst, now_s)


def _duration(seconds: float) -> bytes:
    """As OpenAI spells it: `120ms`, `1.5s`, `6m0s`."""
    if seconds < 1.0:
        return b"%dms" % round(seconds * 1000)
    if seconds < 60.0:
        return f"{seconds:.3g}s".encode()
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return b"%dh%dm%ds" % (hours, minutes, rest) if hours else b"%dm%ds" % (minutes, rest)
