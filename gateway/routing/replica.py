"""One engine server behind the gateway, as the choice of a replica sees it.

Owns no connection and does no checking: the health monitor writes `available`, the data plane counts `in_flight`.
"""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Replica:
    """An engine server; identity is the object itself, so that a set of excluded replicas is cheap.

    name:      what the response header and the metrics call it.
    url:       `http://host:port`, without a trailing slash.
    engine:    `sglang`, `vllm` or `other`.
    pool:      name of the pool that it belongs to.
    available: may be picked; only the health monitor changes it.
    in_flight: exchanges that the data plane has open on it now.
    """

    name: str
    url: str
    host: str
    port: int
    tls: bool = False
    engine: str = "sglang"
    pool: str = ""
    available: bool = False
    in_flight: int = 0
