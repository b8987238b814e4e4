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
    first_pause_s, longest_pause_s: after failures.
    """

    namespace: str | None
    selector: str
    resource: Literal["endpointslices", "pods"]
    port: Port
    scheme: str
    kubeconfig: Path | None = None
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0


class _GoneError(Exception):
    """The server has forgotten the version from which the watch was to go on."""


class Kubernetes:
    """A `Producer`."""

    def __init__(self, options: KubernetesOptions) -> None:
        self._options = options
        self._members: dict[str, tuple[Member, ...]] = {}
        """What each object says, by its name."""
        self._version = ""
        self._told: list[Member] | None = None

    async def run(self, found: Found, failed: Failed) -> None:
        """List, watch, and begin again where that ends."""
        pauses = Pauses(self._options.first_pause_s, self._options.longest_pause_s)
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
                    async for changed in events:
                        failed(None)
                        pauses.reset()
                        if changed:
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
        self._members = {each["metadata"]["name"]: self._members_of(each) for each in document.get("items") or ()}
        return str(document["metadata"]["resourceVersion"])

    async def _watch(self, client: Any) -> AsyncGenerator[bool, None]:
        """Learn what changes after the version that is known, until the server ends it.

        Comes back with whether that which is there changes any members; what comes meanwhile is one more time, however
        much it is.
        """
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
            async for lines in _lines(response):
                changed = False
                for line in lines:
                    changed |= self._learn(json.loads(line))
                yield changed

    def _learn(self, event: Mapping[str, Any]) -> bool:
        """One event of a watch. Whether other members are there than before: most events are of something else."""
        kind, thing = event["type"], event["object"]
        if kind == "ERROR":
            raise _refusal(int(thing.get("code") or 500), thing)
        metadata = thing["metadata"]
        self._version = str(metadata["resourceVersion"])
        if kind == "BOOKMARK":
            return False
        name = metadata["name"]
        before = self._members.pop(name, ())
        if kind != "DELETED":
            self._members[name] = self._members_of(thing)
        return self._members.get(name, ()) != before

    def _members_of(self, thing: Mapping[str, Any]) -> tuple[Member, ...]:
        options = self._options
        members_of = members_of_pod if options.resource == "pods" else members_of_slice
        return tuple(members_of(thing, options.port, options.scheme))

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
        by_url = {member.url: member for _, each in sorted(self._members.items()) for member in each}
        members = [by_url[url] for url in sorted(by_url)]
        if members != self._told:
            self._told = members
            await found(members)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[list[bytes]]:
    """The lines of a stream, as many as are there, however long: an object may exceed the reader's own limit."""
    rest = b""
    async for data in response.content.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        lines = [line for line in lines if line.strip()]
        if lines:
            yield lines


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
