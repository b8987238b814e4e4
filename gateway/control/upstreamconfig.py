"""The configuration of a pool's connections to its replicas: how many, how long, by which name, and under which TLS."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, StringConstraints, model_validator

from gateway.control.document import Document
from gateway.control.part import Limit, Part, Seconds
from gateway.control.problem import Problem
from gateway.control.validation import custom_error
from gateway.wire.clienttls import ClientTls, TlsError, TlsOptions
from gateway.wire.poolpolicy import PoolPolicy

if TYPE_CHECKING:
    from gateway.control.config import PoolConfig

_POLICY = PoolPolicy()

_SecondsOrNone = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_File = Annotated[str, StringConstraints(min_length=1)]


class UpstreamTlsConfig(Part):
    """TLS to replicas with https:// URLs, as PEM files; relative ones are looked for beside the configuration.

    A file that changes counts from the next connection on.

    ca:                 authorities that replicas' certificates must come from; by default the system's.
    client_certificate: what replicas are shown that ask for a certificate, with the chain behind it.
    client_key:         its key, without a passphrase; may stand in the file of the certificate instead.
    server_name:        the name in the replicas' certificates, where that is not the host of their URLs.
    verify:             `false` takes whoever answers for the replica.
    """

    ca: _File | None = None
    client_certificate: _File | None = None
    client_key: _File | None = None
    server_name: _File | None = None
    verify: bool = True

    @model_validator(mode="after")
    def _key_has_certificate(self) -> "UpstreamTlsConfig":
        if self.client_key is not None and self.client_certificate is None:
            raise custom_error("a client_certificate beside the client_key")
        return self

    def options(self, folder: Path) -> TlsOptions:
        """What the wire takes for it."""
        return TlsOptions(
            ca=_beside(folder, self.ca),
            certificate=_beside(folder, self.client_certificate),
            key=_beside(folder, self.client_key),
            server_name=self.server_name,
            verify=self.verify,
        )


class UpstreamConfig(Part):
    """The connections to each replica of a pool. 0 means no limit; durations are in seconds.

    max_connections:             to one replica at the same time; more requests wait for one of them to get free.
    max_waiting:                 so many may wait; one more is tried elsewhere, or answered with 503.
    wait_s:                      the longest wait; it is tried elsewhere then, or answered with 503.
    min_idle:                    kept open and unused, so that requests need not wait for a handshake.
    max_idle:                    unused ones that are kept.
    idle_s:                      an unused one is closed then; by default `timeouts.upstream_idle_s`. Learned to be
                                 shorter where a replica tells, or shows, that it closes earlier.
    max_requests_per_connection: it is closed after so many.
    max_connection_age_s:        it is closed when its request is done after that.
    dns_refresh_s:               a replica's name is looked up again when its addresses are older.
    dead_after_s:                a connection is dead when the other host has acknowledged, or taken, nothing for so
                                 long.
    """

    tls: UpstreamTlsConfig = UpstreamTlsConfig()
    max_connections: Limit = _POLICY.max_connections
    max_waiting: Limit = _POLICY.max_waiting
    wait_s: Seconds = _POLICY.wait_s
    min_idle: Limit = _POLICY.min_idle
    max_idle: Limit = _POLICY.max_idle
    idle_s: Seconds | None = _POLICY.idle_s
    max_requests_per_connection: Limit = _POLICY.max_requests_per_connection
    max_connection_age_s: _SecondsOrNone = _POLICY.max_connection_age_s
    dns_refresh_s: Seconds = _POLICY.dns_refresh_s
    dead_after_s: _SecondsOrNone = _POLICY.dead_after_s

    @model_validator(mode="after")
    def _counts_agree(self) -> "UpstreamConfig":
        for name, limit in (("max_connections", self.max_connections), ("max_idle", self.max_idle)):
            if 0 < limit < self.min_idle:
                raise custom_error(f"a min_idle of at most {name}", f"{self.min_idle} is above {limit}")
        return self

    def policy(self) -> PoolPolicy:
        """What the wire takes for it."""
        return PoolPolicy(**self.model_dump(exclude={"tls"}))


def check_upstreams(pools: Mapping[str, "PoolConfig"], folder: Path, document: Document) -> Iterator[Problem]:
    """The TLS files that cannot be used."""
    for name, pool in pools.items():
        options = pool.upstream.tls.options(folder)
        if options.files:
            try:
                ClientTls(options)
            except TlsError as error:
                location = ("pools", name, "upstream", "tls")
                yield document.problem(location, "PEM files for TLS to replicas", str(error), at_key=True)


def _beside(folder: Path, file: str | None) -> Path | None:
    return None if file is None else folder / file
