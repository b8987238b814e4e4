"""What the admin port can see and touch of a running gateway: its parts, under the names that the API has for them.

Data alone. Whoever puts a gateway together fills it in, and keeps it true.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.breaker.replica import ReplicaBreaker
from gateway.breaker.trust import Trust
from gateway.control.config import Config
from gateway.control.dashboard.memory import Memory, new_memory
from gateway.control.membership import Membership
from gateway.control.poolsteps import PoolSteps
from gateway.control.reloads import Reloader
from gateway.control.steptotals import StepTotals
from gateway.control.tally import Tally
from gateway.control.warmuptally import WarmUpTally
from gateway.feed.health import HealthMonitor
from gateway.feed.running import RunningRequests
from gateway.feed.senses import Senses
from gateway.hookcost import Classifier
from gateway.hookcost.costbook import CostBook
from gateway.routing.admission import AdmissionQueue
from gateway.routing.router import Router
from gateway.state.store import Store
from gateway.tenants.register import Register
from gateway.wire.counts import WireCounts
from gateway.wire.upstream import Upstream


def _nothing() -> None:
    """Nobody is there to end it."""


@dataclass(slots=True)
class AdminContext:
    """The parts of one gateway. All belong to its event loop. A reload puts in the ones that it makes anew.

    is_draining: asked at each request.
    queues, breakers: by pool. upstreams, steps: by replica.
    tenants:     whose requests there are, and what each may use.
    pool_steps:  how steps and predictions are distributed, by pool.
    transitions: breakers' changes since the start, by kind (`signature`, `tenant`, `replica`), state before and after.
    reloader:    reads the configuration again. members: changes who is of a pool.
    discovery:   by pool that has one, why its members are not known at the moment; None where they are.
    wire:        what the listening side counts. open_connections: of clients, now.
    warm_ups:    what is counted of warm-ups.
    end:         asks for the end of the gateway in good order; returns at once.
    memory:      what it remembers for people.
    clock:       the gateway's monotonic one, in seconds; wall: the time of day.
    """

    config: Config
    router: Router
    health: HealthMonitor
    classifier: Classifier
    tally: Tally
    is_draining: Callable[[], bool]
    trust: Trust
    book: CostBook
    store: Store
    tenants: Register
    running: RunningRequests
    senses: Senses
    queues: Mapping[str, AdmissionQueue]
    breakers: Mapping[str, ReplicaBreaker]
    upstreams: Mapping[str, Upstream]
    steps: Mapping[str, StepTotals]
    pool_steps: PoolSteps
    transitions: Mapping[tuple[str, str, str], int]
    reloader: Reloader
    members: Membership
    discovery: Callable[[], Mapping[str, str | None]]
    wire: WireCounts
    open_connections: Callable[[], int]
    clock: Callable[[], float]
    wall: Callable[[], float]
    warm_ups: WarmUpTally = field(default_factory=WarmUpTally)
    end: Callable[[], None] = _nothing
    memory: Memory = field(default_factory=new_memory)
