"""When a cost signature was last named by a replica: the steps, grammars and watchdog's verdicts that spoke of it.

A bounded ring for each of a bounded number of signatures. Judges nothing, and holds nothing of a request but its id.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.hookcost.observation import CompileObservation, OffenceObservation, Origin, StepObservation

_SIGNATURES = 512
_EACH = 20


@dataclass(frozen=True, slots=True)
class Naming:
    """One time. `what`: `step`, `compile` or `watchdog`; `us` is its own time; `at`: seconds of the wall clock."""

    at: float
    what: str
    us: float
    request_id: str
    tenant: str
    pool: str
    replica: str
    by_kind: dict[str, float] = field(default_factory=dict)
    said: str = ""


class Namings:
    """Of one gateway. `wall`: the time of day, in seconds."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._rings: OrderedDict[str, deque[Naming]] = OrderedDict()

    def add(self, observation: StepObservation | CompileObservation | OffenceObservation) -> None:
        """A replica's feed has named a request."""
        origin = observation.origin
        match observation:
            case StepObservation():
                kinds = {kind: round(us, 1) for kind, us in observation.kinds.items()}
                naming = self._naming(origin, "step", observation.own_us, kinds)
            case CompileObservation():
                naming = self._naming(origin, "compile", observation.compile_ms * 1e3, said=observation.error or "")
            case OffenceObservation():
                naming = self._naming(origin, "watchdog", observation.own_us, said=observation.reason)
        ring = self._rings.get(origin.signature)
        if ring is None:
            ring = self._rings[origin.signature] = deque(maxlen=_EACH)
            if len(self._rings) > _SIGNATURES:
                self._rings.popitem(last=False)
        else:
            self._rings.move_to_end(origin.signature)
        ring.append(naming)

    def of(self, signature: str) -> list[Naming]:
        """The last times, newest first."""
        return [*reversed(self._rings.get(signature, ()))]

    def _naming(
        self, origin: Origin, what: str, us: float, by_kind: dict[str, float] | None = None, said: str = ""
    ) -> Naming:
        return Naming(
            self._wall(),
            what,
            round(us, 1),
            origin.request_id,
            origin.tenant,
            origin.pool,
            origin.replica,
            by_kind or {},
            said,
        )
