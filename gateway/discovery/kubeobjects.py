"""What objects of Kubernetes say about members: pods and EndpointSlices as their API gives them, as plain data."""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.discovery.member import Member, url_of

Port = int | str
"""A number, or the name that a container or a service gives it."""


def members_of_pod(pod: Mapping[str, Any], port: Port, scheme: str) -> Iterator[Member]:
    """A pod that is ready and not on its way out."""
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    address = status.get("podIP")
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ())
    number = port if isinstance(port, int) else _container_port(pod, port)
    if address and ready and number is not None and not metadata.get("deletionTimestamp"):
        yield Member(url_of(scheme, address, number), metadata.get("name"))


def members_of_slice(endpoint_slice: Mapping[str, Any], port: Port, scheme: str) -> Iterator[Member]:
    """The endpoints of a slice that are ready and not on their way out."""
    number = port if isinstance(port, int) else _slice_port(endpoint_slice, port)
    if number is None or endpoint_slice.get("addressType") not in ("IPv4", "IPv6"):
        return
    for endpoint in endpoint_slice.get("endpoints") or ():
        conditions = endpoint.get("conditions") or {}
        # As the API has it: not said is ready.
        if conditions.get("ready") is False or conditions.get("terminating"):
            continue
        name = (endpoint.get("targetRef") or {}).get("name")
        for address in (endpoint.get("addresses") or ())[:1]:  # further ones are the same endpoint's
            yield Member(url_of(scheme, address, number), name, zone=endpoint.get("zone") or "")


def _container_port(pod: Mapping[str, Any], name: str) -> int | None:
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == name:
                return int(port["containerPort"])
    return None


def _slice_port(endpoint_slice: Mapping[str, Any], name: str) -> int | None:
    for port in endpoint_slice.get("ports") or ():
        if port.get("name") == name and port.get("port") is not None:
            return int(port["port"])
    return None
