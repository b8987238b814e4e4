"""From the configuration of a pool to the connections to each of its replicas, for the data plane and for the senses.

Owns what replicas share: one TLS context for all that are reached alike.
"""

from gateway.control.config import Config
from gateway.feed.reach import UNIX, Reach, Way
from gateway.routing.replica import Replica
from gateway.wire.carrier import Carrier
from gateway.wire.clienttls import ClientTls, TlsOptions
from gateway.wire.limits import Timeouts
from gateway.wire.upstream import Upstream


class Upstreams:
    """Connects replicas. reach: the ways to those that a plain URL does not lead to, for whoever looks at them."""

    def __init__(self, carrier: Carrier | None = None) -> None:
        """carrier: takes the requests of clients to replicas, instead of connections of ours."""
        self.reach = Reach()
        self._carrier = carrier
        self._tls: dict[TlsOptions, ClientTls] = {}
        self._unusual: dict[str, Upstream] = {}
        """By URL, those whose way is in `reach`."""
        self._look_again_at = 64

    def connect(self, replica: Replica, config: Config) -> Upstream:
        """The connections to a replica. Raises TlsError where the pool's certificates cannot be read any more."""
        timeouts = Timeouts(**config.timeouts.model_dump())
        pool = config.pools[replica.pool].upstream
        options = pool.tls.options(config.folder)
        tls = self._tls_of(options) if replica.tls else None
        path = replica.url.removeprefix(UNIX) if replica.url.startswith(UNIX) else ""
        upstream = Upstream(
            replica.host,
            replica.port,
            timeouts,
            path=path,
            tls=tls,
            name=replica.name,
            policy=pool.policy(),
            carrier=self._carrier,
        )
        if path:
            self._tell(upstream, replica, Way(origin="http://localhost", socket=path))
        elif tls is not None:
            used = tls
            self._tell(
                upstream,
                replica,
                Way(origin=replica.url, tls=lambda: used.context, server_name=options.server_name),
            )
        return upstream

    def _tls_of(self, options: TlsOptions) -> ClientTls:
        tls = self._tls.get(options)
        if tls is None:
            tls = self._tls[options] = ClientTls(options)
        return tls

    def _tell(self, upstream: Upstream, replica: Replica, way: Way) -> None:
        self.reach.add(replica.url, way)
        self._unusual[replica.url] = upstream
        if len(self._unusual) > self._look_again_at:  # replicas come and go
            for url in [url for url, each in self._unusual.items() if each.closed]:
                del self._unusual[url]
                self.reach.remove(url)
            self._look_again_at = max(64, 2 * len(self._unusual))
