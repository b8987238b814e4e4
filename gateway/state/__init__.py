"""Memory: what gateways remember together. One small interface, kept in the process or shared through Redis.

Values are opaque bytes; nothing here knows what a signature, a breaker or a tenant is. The ways in are `MemoryStore`
and `gateway.state.redis.RedisStore`, which alone needs the `redis` package.
"""

from gateway.state.memory import MemoryStore
from gateway.state.store import Added, Decided, Record, Store, StoreStatus, Watcher

__all__ = ["Added", "Decided", "MemoryStore", "Record", "Store", "StoreStatus", "Watcher"]
