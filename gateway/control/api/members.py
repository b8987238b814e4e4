"""`/api/v1/pools/{pool}/replicas/…`: replicas that people add, drain and take out while the gateway runs."""

from dataclasses import dataclass

import structlog
from aiohttp import web

from gateway.control.api.quarantine import ByHand
from gateway.control.api.reply import ApiError, body_of, json_reply
from gateway.control.config import ReplicaConfig
from gateway.control.context import AdminContext
from gateway.control.membership import MembershipError
from gateway.routing.replica import Replica

_log = structlog.get_logger("steplane.admin")

_STATUS = {"unknown_pool": 404, "unknown_replica": 404, "replica_exists": 409}


@dataclass(frozen=True, slots=True)
class MembersApi:
    """Changes who is of a pool. What is done here lasts until it is undone, nobody names the replica any more, or the
    gateway ends."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        one = "/api/v1/pools/{pool}/replicas/{replica}"
        return [
            web.post("/api/v1/pools/{pool}/replicas", self.add),
            web.delete(one, self.remove),
            web.post(f"{one}/drain", self.drain),
            web.post(f"{one}/undrain", self.undrain),
            web.post("/api/v1/replicas/{replica}/drain", self.drain),
            web.post("/api/v1/replicas/{replica}/undrain", self.undrain),
            web.post("/api/v1/replicas/{replica}/eject", self.eject),
        ]

    async def add(self, request: web.Request) -> web.Response:
        """One more replica, as the configuration would name it: `{url, name, …}`."""
        wanted = await body_of(request, ReplicaConfig)
        pool = request.match_info["pool"]
        try:
            replica = await self.context.members.add(pool, wanted)
        except MembershipError as error:
            raise _refused(error) from None
        return self._done("added", replica, status=201)

    async def remove(self, request: web.Request) -> web.Response:
        """Nothing new is sent there, what runs is finished; then it is gone."""
        replica = self._named(request)
        try:
            await self.context.members.remove(replica.name)
        except MembershipError as error:
            raise _refused(error) from None
        return self._done("removed", replica)

    async def drain(self, request: web.Request) -> web.Response:
        """Nothing new is sent there, what runs is finished; `{author, reason}` may say why."""
        by = await _by(request)
        replica = self._named(request)
        self.context.members.drain(replica.name)
        return self._done("draining", replica, by=by)

    async def undrain(self, request: web.Request) -> web.Response:
        """Requests are sent there again; `{author, reason}` may say why."""
        by = await _by(request)
        replica = self._named(request)
        self.context.members.undrain(replica.name)
        return self._done("undrained", replica, by=by)

    async def eject(self, request: web.Request) -> web.Response:
        """Take it for sick, as its breaker does by itself: it comes back by trials."""
        by = await body_of(request, ByHand)
        replica = self._named(request)
        refusal = self.context.breakers[replica.pool].eject(replica.name, f"{by.author}: {by.reason}")
        if refusal:
            raise ApiError(409, "not_ejected", f"replica {replica.name!r} is not ejected: {refusal}")
        return self._done("ejected", replica, by=by)

    def _named(self, request: web.Request) -> Replica:
        name, pool = request.match_info["replica"], request.match_info.get("pool")
        pools = self.context.router.pools
        if pool is not None and pool not in pools:
            raise ApiError(404, "unknown_pool", f"there is no pool {pool!r}, only {', '.join(pools)}")
        for each in pools.values() if pool is None else (pools[pool],):
            for replica in each.replicas:
                if replica.name == name:
                    return replica
        where = "" if pool is None else f" in pool {pool}"
        raise ApiError(404, "unknown_replica", f"there is no replica {name!r}{where}; GET /api/v1/replicas lists them")

    def _done(self, what: str, replica: Replica, status: int = 200, by: ByHand | None = None) -> web.Response:
        said = {} if by is None else by.model_dump()
        _log.info("replica_changed", what=what, pool=replica.pool, replica=replica.name, url=replica.url, **said)
        shown = {
            "what": what,
            "name": replica.name,
            "pool": replica.pool,
            "url": replica.url,
            "draining": replica.draining,
            "in_flight": replica.in_flight,
        }
        return json_reply(shown, status=status)


async def _by(request: web.Request) -> ByHand | None:
    """Who does it and why, where he says so."""
    if request.content_type == "application/json" and (await request.read()).strip() not in (b"", b"{}"):
        return await body_of(request, ByHand)
    return None


def _refused(error: MembershipError) -> ApiError:
    return ApiError(_STATUS[error.code], error.code, str(error))
