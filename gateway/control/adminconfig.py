"""The configuration of the admin port: where it listens, and who may read and change things there."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from gateway.control.document import Document
from gateway.control.network import Address
from gateway.control.part import HostPort, Name, Part
from gateway.control.problem import Problem
from gateway.control.tenantsconfig import KeyDigest
from gateway.control.validation import custom_error

HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,253}$")]


class CredentialConfig(Part):
    """One who may enter.

    name:   who it is, for the log; with `basic` the user's name.
    digest: of the token or password, as `steplane key new` prints: a long random one, for it can't be guessed then.
    role:   `read`: look and explain. `operate`: change things, too.
    """

    name: Name
    digest: KeyDigest
    role: Literal["read", "operate"] = "read"


class AdminAuthConfig(Part):
    """Who may use the admin port; nobody need say who he is where it is bound to loopback and none are given.

    tokens:  shown as `Authorization: Bearer …`. basic: shown as user and password.
    metrics: `open`: `/metrics` is for everybody, as `/healthz` and `/readyz` are; `read`: for who may read.
    """

    tokens: list[CredentialConfig] = Field(default_factory=list)
    basic: list[CredentialConfig] = Field(default_factory=list)
    metrics: Literal["open", "read"] = "open"

    @model_validator(mode="after")
    def _names_differ(self) -> "AdminAuthConfig":
        for each in (self.tokens, self.basic):
            names = [credential.name for credential in each]
            if len(set(names)) != len(names):
                raise custom_error("a name of its own for each who may enter")
        return self

    @property
    def is_given(self) -> bool:
        """Whether anybody is named."""
        return bool(self.tokens or self.basic)


class AdminConfig(Part):
    """The admin port: health, metrics, the API and the dashboard.

    auth:  who may use it; needed where others than this machine can reach it.
    hosts: names beside `localhost` and its own address by which it may be asked for while there is no login.
    """

    listen: HostPort = Address("127.0.0.1", 8081)
    auth: AdminAuthConfig = AdminAuthConfig()
    hosts: list[HostName] = Field(default_factory=list)


def check_admin(listen: Address, auth: AdminAuthConfig, document: Document) -> list[Problem]:
    """What deserves a look: a port that others can reach, and nobody who could use it."""
    if auth.is_given or listen.is_loopback:
        return []
    expected = "somebody who may use it (auth: {tokens: […]}), since others than this machine can reach it"
    hint = "until then only /healthz, /readyz and /metrics answer; `steplane key new` makes a token"
    return [document.problem(("admin", "listen"), expected, str(listen), hint)]
