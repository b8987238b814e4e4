"""`/api/v1/tenants`: who is limited in what and what each has left, and the keys that all gateways share.

A key is shown once, in the answer that makes it: kept is only its digest.
"""

import math
from dataclasses import dataclass
from typing import Any

import structlog
from aiohttp import web

from gateway.control.api.quarantine import ByHand
from gateway.control.api.reply import ApiError, body_of, json_reply, rounded
from gateway.control.context import AdminContext
from gateway.tenants.keys import digest, is_digest, new_key
from gateway.tenants.register import KEY_KIND

log = structlog.get_logger("steplane.tenants")


@dataclass(frozen=True, slots=True)
class TenantsApi:
    """Reads, and makes and takes back shared keys."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [
            web.get("/api/v1/tenants", self.show),
            web.post("/api/v1/tenants/{tenant}/keys", self.add_key),
            web.post("/api/v1/tenants/{tenant}/keys/{digest}/revoke", self.revoke_key),
        ]

    async def show(self, _: web.Request) -> web.Response:
        """All named tenants, and the others that were seen lately and are limited."""
        context = self.context
        tenants = context.tenants
        now_s = context.clock()
        keys = tenants.key_counts()
        shown = [self._document(name, keys.get(name, 0), now_s) for name in tenants.names()]
        return json_reply({"require_key": tenants.require_key, "tenants": shown})

    async def add_key(self, request: web.Request) -> web.Response:
        """A new key for a tenant that the configuration names; every gateway knows it within a second."""
        by = await body_of(request, ByHand)
        tenant = self._named(request)
        self._shared()
        key = new_key()
        self.context.store.force(KEY_KIND, digest(key.encode()), tenant.encode(), ttl_s=math.inf)
        log.warning("key_added", tenant=tenant, digest=digest(key.encode()), author=by.author, reason=by.reason)
        return json_reply({"tenant": tenant, "key": key, "digest": digest(key.encode())}, status=201)

    async def revoke_key(self, request: web.Request) -> web.Response:
        """Take a shared key back; those in a file of the configuration are taken back there."""
        by = await body_of(request, ByHand)
        tenant = self._named(request)
        self._shared()
        known = request.match_info["digest"]
        if not is_digest(known) or self.context.tenants.stored_owner(known) != tenant:
            raise ApiError(404, "no_such_key", f"{tenant!r} has no shared key with that digest (sha256:…)")
        self.context.store.force(KEY_KIND, known, b"", ttl_s=math.inf)
        log.warning("key_revoked", tenant=tenant, digest=known, author=by.author, reason=by.reason)
        return json_reply({"tenant": tenant, "digest": known, "revoked": True})

    def _named(self, request: web.Request) -> str:
        tenant = request.match_info["tenant"]
        if not self.context.tenants.is_named(tenant):
            raise ApiError(404, "no_such_tenant", f"the configuration names no tenant {tenant!r}")
        return tenant

    def _shared(self) -> None:
        if self.context.store.status().kind != "redis":
            message = "keys that are made here would be lost with this process: use `state: {redis: …}`, or put the "
            raise ApiError(409, "not_shared", message + "digest of a key (`steplane key new`) into the configuration")

    def _document(self, name: str, keys: int, now_s: float) -> dict[str, Any]:
        tenants = self.context.tenants
        profile = tenants.profile(name)
        allowance = tenants.known_allowance(name)
        left = {} if allowance is None else allowance.levels(now_s)
        limits = {
            resource.value: rounded(
                {"per_s": rate.per_s, "burst": rate.burst, "left": left.get(resource, rate.burst)},
            )
            for resource, rate in profile.limits.items()
        }
        return {
            "tenant": name,
            "named": tenants.is_named(name),
            "keys": keys,
            "priority": profile.priority,
            "pools": None if profile.pools is None else sorted(profile.pools),
            "limits": limits,
        }
