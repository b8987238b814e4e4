"""Members from Kubernetes: pods or EndpointSlices by label, listed once and watched from there.

Owns the protocol of list and watch: a watch goes on from the last version that was seen, which bookmarks tell even
where nothing happens; a version that the server has forgotten (410 Gone) means to list again. While the server is away
the last known set holds. Needs kubernetes_asyncio (the extra `kubernetes`), and of the cluster only the right to list
and watch the one resource.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp

from gateway.discovery.kubeobjects import Port, members_of_pod, members_of_slice
from gateway.discovery.member import Failed, Found, Member
from gateway.retry.pauses import Pauses

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_WATCH_S = 240
"""How long the server is to keep one watch open."""
_SILENCE_S = 300.0
"""A connection that says nothing for so long is dead: bookmarks come about once a minute."""
_LIST_S = 30.0
_GONE = 410


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """What to watch.

    namespace:  None: the one that this gateway runs in, else `default`.
    selector:   a label selector. resource: where readiness and addresses are read.
    kubeconfig: a file that says how the cluster is reached; None: as a pod in it, else as `kubectl` would.
    first_pause_s, most_pause_s: after failures.
    """

    namespace: str | None
    selector: str
    resource: Literal["endpointslices", "pods"]
    port: Port
    scheme: str
    kubeconfig: Path | None = None
    first_pause_s: float = 0.5
    most_pause_s: float = 30.0


class _GoneError(Exception):
    """The server has forgotten the version from which the watch was to go on."""


class Kubernetes:
    """A `Producer`."""

    def __init__(self, options: KubernetesOptions) -> None:
        self._options = options
        self._objects: dict[str, Mapping[str, Any]] = {}
        """By name."""
        self._version = ""
        self._said: list[Member] | None = None

    async def run(self, found: Found, failed: Failed) -> None:
        """List, watch, and begin again where that ends."""
        pauses = Pauses(self._options.first_pause_s, self._options.most_pause_s)
        while True:
            try:
                async with await self._client() as client:
                    await self._follow(client, found, failed, pauses)
            except _GoneError:
                failed("the API server has forgotten where we were: everything is listed again")
            except Exception as error:  # the client's configuration has errors of its own
                failed(_said(error))
            await asyncio.sleep(pauses.next_s())

    async def _client(self) -> Any:
        """A client of the API. What it needs is read again each time: tokens and certificates are replaced."""
        from kubernetes_asyncio import client, config

        configuration = client.Configuration()
        kubeconfig = self._options.kubeconfig
        if kubeconfig is None and await asyncio.to_thread(_NAMESPACE.exists):
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            file = None if kubeconfig is None else str(kubeconfig)
            await config.load_kube_config(config_file=file, client_configuration=configuration)
        return client.ApiClient(configuration)

    async def _follow(self, client: Any, found: Found, failed: Failed, pauses: Pauses) -> None:
        self._version = await self._list(client)
        failed(None)
        pauses.reset()
        await self._tell(found)
        while True:
            seen = self._version
            try:
                async with aclosing(self._watch(client)) as events:
                    async for _ in events:
                        failed(None)
                        pauses.reset()
                        await self._tell(found)
            except _DROPPED as error:
                # What was seen so far holds: the next watch goes on behind it.
                failed(_said(error))
            if self._version == seen:  # nothing came of it
                await asyncio.sleep(pauses.next_s())

    async def _list(self, client: Any) -> str:
        """Learn everything there is; the version that it is of."""
        async with asyncio.timeout(_LIST_S):
            async with await self._ask(client) as response:
                document = json.loads(await response.read())
        if response.status != 200:
            raise _refusal(response.status, document)
        self._objects = {each["metadata"]["name"]: each for each in document.get("items") or ()}
        return str(document["metadata"]["resourceVersion"])

    async def _watch(self, client: Any) -> AsyncGenerator[None, None]:
        """Learn what changes after the version that is known, until the server ends it; comes back after each event."""
        response = await self._ask(
            client,
            watch=True,
            resource_version=self._version,
            allow_watch_bookmarks=True,
            timeout_seconds=_WATCH_S,
            _request_timeout=aiohttp.ClientTimeout(total=None, sock_connect=_LIST_S, sock_read=_SILENCE_S),
        )
        with closing(response):
            if response.status != 200:
                raise _refusal(response.status, json.loads(await response.read()))
            async for line in _lines(response):
                self._learn(json.loads(line))
                yield

    def _learn(self, event: Mapping[str, Any]) -> None:
        """One event of a watch."""
        kind, thing = event["type"], event["object"]
        if kind == "ERROR":
            raise _refusal(int(thing.get("code") or 500), thing)
        metadata = thing["metadata"]
        if kind in ("ADDED", "MODIFIED"):
            self._objects[metadata["name"]] = thing
        elif kind == "DELETED":
            self._objects.pop(metadata["name"], None)
        self._version = str(metadata["resourceVersion"])

    async def _ask(self, client: Any, **more: Any) -> aiohttp.ClientResponse:
        from kubernetes_asyncio.client import CoreV1Api, DiscoveryV1Api

        options = self._options
        ask: Any  # typed as if it made objects of what comes; the bytes are enough
        if options.resource == "pods":
            ask = CoreV1Api(client).list_namespaced_pod
        else:
            ask = DiscoveryV1Api(client).list_namespaced_endpoint_slice
        namespace = options.namespace or await asyncio.to_thread(_own_namespace)
        response: aiohttp.ClientResponse = await ask(
            namespace, label_selector=options.selector, _preload_content=False, **more
        )
        return response

    async def _tell(self, found: Found) -> None:
        options = self._options
        members_of = members_of_pod if options.resource == "pods" else members_of_slice
        by_url = {
            member.url: member
            for _, each in sorted(self._objects.items())
            for member in members_of(each, options.port, options.scheme)
        }
        members = [by_url[url] for url in sorted(by_url)]
        if members != self._said:
            self._said = members
            await found(members)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of a stream, however long they are: an object may be larger than the reader's own limit."""
    rest = b""
    async for data in response.content.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield line


def _refusal(status: int, document: Mapping[str, Any]) -> Exception:
    if status == _GONE:
        return _GoneError()
    return ConnectionRefusedError(f"the API server answers {status}: {document.get('message') or document}")


def _own_namespace() -> str:
    try:
        return _NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return "default"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


_DROPPED = (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError)
