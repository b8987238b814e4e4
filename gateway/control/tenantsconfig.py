"""The configuration of tenants: whose a request is, the keys that say so, and what each tenant may do."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from gateway.control.document import Document
from gateway.control.part import Name, Part
from gateway.control.problem import Problem, shown
from gateway.control.validation import HEADER_PATTERN, custom_error
from gateway.tenants.allowance import Rate, Resource
from gateway.tenants.keys import authorization, is_digest
from gateway.tenants.profile import Profile, patterns

_BURST_S = 10
"""A burst that is not given is what comes in so many seconds."""

_PerSecond = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _is_key(value: str) -> str:
    if not is_digest(value):
        raise custom_error(
            "a digest like sha256:… of 64 hexadecimal digits", "`steplane key hash` prints that of a key"
        )
    return value


def _is_shown(value: str) -> str:
    try:
        authorization(value)
    except ValueError as error:
        raise custom_error(str(error)) from None
    return value


ApiKey = Annotated[str, AfterValidator(_is_shown)]
"""A key that is shown to a replica; empty: none is."""
KeyDigest = Annotated[str, AfterValidator(_is_key)]


class LimitsConfig(Part):
    """What a tenant may use a second, all gateways together, and how much at once (`_burst`; default: of ten seconds).

    requests_per_s: requests.
    tokens_per_s:   tokens of prompts (estimated from their bytes) and replies.
    hook_us_per_s:  microseconds of hook time on the engines' step threads, grammar compilation included.
    """

    requests_per_s: _PerSecond | None = None
    requests_burst: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    tokens_per_s: _PerSecond | None = None
    tokens_burst: _PerSecond | None = None
    hook_us_per_s: _PerSecond | None = None
    hook_us_burst: _PerSecond | None = None

    def rates(self) -> dict[Resource, Rate]:
        """The limits that are set."""
        given = {
            Resource.requests: (self.requests_per_s, self.requests_burst),
            Resource.tokens: (self.tokens_per_s, self.tokens_burst),
            Resource.hook_us: (self.hook_us_per_s, self.hook_us_burst),
        }
        return {
            resource: Rate(per_s, burst if burst is not None else max(1.0, per_s * _BURST_S))
            for resource, (per_s, burst) in given.items()
            if per_s is not None
        }


class TenantConfig(Part):
    """One tenant.

    keys:      digests of its API keys. keys_file: a file with more of them, one on a line, `#` begins a comment.
    limits:    of its own, instead of those for all.
    priority:  where requests wait, higher goes first.
    models:    names that it may ask for, with * and ? as wildcards. Default: any.
    pools:     where its requests may go, beside quarantine. Default: anywhere.
    """

    keys: list[KeyDigest] = Field(default_factory=list)
    keys_file: str | None = None
    limits: LimitsConfig | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    models: Annotated[list[str], Field(min_length=1)] | None = None
    pools: Annotated[list[Name], Field(min_length=1)] | None = None

    def profile(self, limits: LimitsConfig) -> Profile:
        """Its rights; `limits` are those for all."""
        return Profile(
            limits=(self.limits or limits).rates(),
            priority=self.priority,
            models=None if self.models is None else patterns(self.models),
            pools=None if self.pools is None else frozenset(self.pools),
        )


class TenantsConfig(Part):
    """Whose a request is: by `header`, which a proxy in front must set, else by its API key.

    require_key: requests without a known key are answered with 401.
    limits:      of each tenant that has none of its own.
    named:       the tenants that are known. A key that is none of theirs makes a tenant of its own.
    """

    header: Annotated[str, StringConstraints(pattern=HEADER_PATTERN)] | None = None
    require_key: bool = False
    limits: LimitsConfig = LimitsConfig()
    named: dict[Name, TenantConfig] = Field(default_factory=dict)

    def profiles(self) -> dict[str, Profile]:
        """The rights of all named tenants."""
        return {name: tenant.profile(self.limits) for name, tenant in self.named.items()}

    def unnamed(self) -> Profile:
        """The rights of all others."""
        return Profile(limits=self.limits.rates())

    def pools_of(self, tenant: str) -> frozenset[str] | None:
        """The pools that a tenant may use; None: any."""
        named = self.named.get(tenant)
        return None if named is None or named.pools is None else frozenset(named.pools)

    def keys(self, folder: Path) -> dict[str, str]:
        """Tenants by the digests of their keys. Raises ValueError for a bad file and for a key of two tenants."""
        owners: dict[str, str] = {}
        for name, tenant in self.named.items():
            digests = [*tenant.keys]
            if tenant.keys_file is not None:
                digests += read_digests(folder / tenant.keys_file)
            for each in digests:
                if owners.setdefault(each, name) != name:
                    raise ValueError(f"the key {each[:19]}… belongs to {owners[each]!r} and to {name!r}")
        return owners


def check_tenants(part: TenantsConfig, folder: Path, pools: Collection[str], document: Document) -> list[Problem]:
    """What is wrong with the tenants that one entry alone does not show."""
    problems: list[Problem] = []
    for name, tenant in part.named.items():
        where = ("tenants", "named", name)
        for at, pool in enumerate(tenant.pools or ()):
            if pool not in pools:
                problems.append(document.problem((*where, "pools", at), f"one of {', '.join(pools)}", shown(pool)))
    try:
        part.keys(folder)
    except ValueError as error:
        problems.append(document.problem(("tenants", "named"), "keys that can be read, each of one tenant", str(error)))
    return problems


def read_digests(path: Path) -> list[str]:
    """The digests in a file of keys. Raises ValueError that says what is wrong with it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"can't read the keys in {path.name}: {error}") from None
    digests = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text and not is_digest(text):
            raise ValueError(f"{path.name}, line {number}: no digest like sha256:… of 64 hexadecimal digits")
        if text:
            digests.append(text)
    return digests
