"""The configuration of discovery: where the members of a pool are looked for.

What looks is imported when it is made: it brings HTTP clients and file watchers, and every command reads the
configuration.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gateway.control.part import HostPort, Part, Seconds
from gateway.control.validation import custom_error
from gateway.discovery.member import Producer

PortNumber = Annotated[int, Field(ge=1, le=65535)]
Scheme = Literal["http", "https"]


class DnsConfig(Part):
    """All addresses of a host (`A`, IPv6 as well), or the servers of a service (`SRV`).

    port:       of the servers; SRV records say it themselves.
    refresh_s:  from one look to the next.
    nameserver: for SRV, HOST:PORT of a DNS server; by default the system's.
    """

    name: str
    type: Literal["A", "SRV"] = "A"
    port: PortNumber | None = None
    scheme: Scheme = "http"
    refresh_s: Seconds = 30
    nameserver: HostPort | None = None

    @model_validator(mode="after")
    def _checked(self) -> "DnsConfig":
        if (self.port is None) != (self.type == "SRV"):
            raise custom_error("a port for type A, and none for SRV, whose records say it")
        if self.type == "SRV" and find_spec("dns") is None:
            raise custom_error("dnspython for SRV records", "pip install 'steplane[dns]'")
        return self

    def producer(self) -> Producer:
        """What looks."""
        from gateway.discovery.dns import Dns, DnsOptions

        server = None if self.nameserver is None else (self.nameserver.host, self.nameserver.port)
        return Dns(DnsOptions(self.name, self.type, self.port, self.scheme, self.refresh_s, server))


class TargetFileConfig(Part):
    """A file in the form of Prometheus' `file_sd`, JSON or YAML, relative to this one; read again when it changes."""

    path: str
    scheme: Scheme = "http"

    def producer(self, folder: Path) -> Producer:
        """What looks."""
        from gateway.discovery.targetfile import TargetFile

        return TargetFile(folder / self.path, self.scheme)


class KubernetesConfig(Part):
    """Pods, or the endpoints of a service, that are ready.

    namespace:  by default the gateway's own.
    selector:   of labels, as in app=engine,tier!=test.
    pool_label: only what has this label, too, with the name of the pool: one selector does for all pools.
    resource:   `endpointslices` (of services; tells the zone) or `pods`.
    port:       a number, or its name in the service or the container.
    kubeconfig: how the cluster is reached from outside, relative to this file; in a pod its service account is used.
    """

    namespace: str | None = None
    selector: str = ""
    pool_label: str | None = None
    resource: Literal["endpointslices", "pods"] = "endpointslices"
    port: PortNumber | str
    scheme: Scheme = "http"
    kubeconfig: str | None = None

    @model_validator(mode="after")
    def _checked(self) -> "KubernetesConfig":
        if not self.selector and self.pool_label is None:
            raise custom_error("a selector or a pool_label: without either it would be the whole namespace")
        if find_spec("kubernetes_asyncio") is None:
            raise custom_error("kubernetes_asyncio", "pip install 'steplane[kubernetes]'")
        return self

    def producer(self, pool: str, folder: Path) -> Producer:
        """What looks, for the pool of that name."""
        from gateway.discovery.kubernetes import Kubernetes, KubernetesOptions

        selectors = [self.selector, "" if self.pool_label is None else f"{self.pool_label}={pool}"]
        return Kubernetes(
            KubernetesOptions(
                namespace=self.namespace,
                selector=",".join(filter(None, selectors)),
                resource=self.resource,
                port=self.port,
                scheme=self.scheme,
                kubeconfig=None if self.kubeconfig is None else folder / self.kubeconfig,
            )
        )


class DiscoverConfig(Part):
    """Where the members of a pool are looked for, instead of or beside `replicas`: one of `dns`, `file`, `kubernetes`.

    max_removed_percent: of the members that were found, so many may vanish at once. More do only if that still holds
                         after `settle_s`: an error elsewhere must not empty a pool.
    """

    dns: DnsConfig | None = None
    file: TargetFileConfig | None = None
    kubernetes: KubernetesConfig | None = None
    max_removed_percent: Annotated[float, Field(ge=0, le=100)] = 50
    settle_s: Seconds = 60

    @model_validator(mode="after")
    def _one(self) -> "DiscoverConfig":
        if sum(part is not None for part in (self.dns, self.file, self.kubernetes)) != 1:
            raise custom_error("one of dns, file and kubernetes")
        return self

    def producer(self, pool: str, folder: Path) -> Producer:
        """What looks, for the pool of that name; files are relative to `folder`."""
        if self.dns is not None:
            return self.dns.producer()
        if self.file is not None:
            return self.file.producer(folder)
        assert self.kubernetes is not None
        return self.kubernetes.producer(pool, folder)
