"""A pool that writes down what it says to its queue."""

from gateway.routing.pool import Pool
from gateway.routing.replica import Replica


def pool_of(count: int) -> tuple[Pool, list[Replica], list[str]]:
    replicas = [Replica(f"r{at}", "http://a", "a", 1, available=True) for at in range(count)]
    pool = Pool("p", tuple(replicas))
    told: list[str] = []
    pool.on_empty = lambda: told.append("empty")
    pool.on_room = lambda replica: told.append(f"room on {replica.name}")
    return pool, replicas, told
