"""What stands against signatures whose breakers are closed, while it is not enough to open them: windowed counts.

Nothing is kept of a signature that stays within its limits. Bounded: beyond the bound what was added to longest ago is
forgotten.
"""

from collections import OrderedDict
from dataclasses import dataclass

from gateway.breaker.policy import Aborts, OverBudget
from gateway.hookcost.observation import Limit, OffenceObservation, RollupObservation, StepObservation


class WindowCount:
    """Whether something happened `count` times within `window_s`, both ends included."""

    __slots__ = ("_at_s", "_count", "_window_s", "worst")

    def __init__(self, count: int, window_s: float) -> None:
        # A list of so few is a fifth of a deque, and there is one for each signature.
        self._at_s: list[float] = []
        self._count = max(1, count)
        self._window_s = window_s
        self.worst = 0.0
        """The largest of the values that were counted within the window."""

    def add(self, at_s: float, value: float) -> bool:
        """Count one; True when the window is full."""
        times = self._at_s
        if not times or at_s - times[-1] > self._window_s:
            self.worst = 0.0
        times.append(at_s)
        if len(times) > self._count:
            del times[0]
        self.worst = max(self.worst, value)
        return len(times) == self._count and at_s - times[0] <= self._window_s


class Shares:
    """How many of a signature's steps within the window were over budget, by whole seconds."""

    __slots__ = ("_seconds", "_window_s")

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._seconds: list[list[float]] = []
        """Second, steps, and steps over budget."""

    def add(self, at_s: float, steps: int, over: int) -> None:
        """Add to the second of `at_s`, and forget those that are out of the window."""
        seconds, second = self._seconds, at_s // 1.0
        if not seconds or seconds[-1][0] < second:
            seconds.append([second, 0.0, 0.0])
            while seconds[0][0] < second - self._window_s:
                del seconds[0]
        seconds[-1][1] += steps
        seconds[-1][2] += over

    def reach(self, share: float) -> bool:
        """Whether so many of the steps were over budget. They are told of later than those that were."""
        steps = sum([second[1] for second in self._seconds], 0.0)
        return sum([second[2] for second in self._seconds], 0.0) >= share * steps


@dataclass(slots=True)
class Evidence:
    """Against one signature. `last_step`: moment, replica and request of the last step that was counted."""

    over_budget: WindowCount
    aborts: WindowCount
    shares: Shares
    last_step: tuple[float, str, str] = (-1.0, "", "")


class EvidenceBook:
    """Evidence by signature."""

    def __init__(self, over_budget: OverBudget, aborts: Aborts, capacity: int) -> None:
        self._over_budget = over_budget
        self._aborts = aborts
        self._capacity = capacity
        self._by_signature: OrderedDict[str, Evidence] = OrderedDict()
        self._compile_blames: dict[str, tuple[str, float]] = {}

    def __len__(self) -> int:
        return len(self._by_signature)

    def reconfigure(self, over_budget: OverBudget, aborts: Aborts) -> None:
        """Count by other limits. What was counted by the old ones is forgotten if they differ."""
        if (over_budget, aborts) != (self._over_budget, self._aborts):
            self._over_budget, self._aborts = over_budget, aborts
            self._by_signature.clear()

    def count_step(self, observation: StepObservation) -> WindowCount | None:
        """Count a step over budget; the count when it is enough.

        What is read at one moment of one replica about several requests is one step's: what held them all up (a page
        fault, a neighbour on the CPU) is counted once.
        """
        origin = observation.origin
        evidence = self._of(origin.signature)
        at_s, replica, request_id = evidence.last_step
        if at_s == observation.at_s and replica == origin.replica and request_id != origin.request_id:
            return None
        evidence.last_step = (observation.at_s, origin.replica, origin.request_id)
        evidence.shares.add(observation.at_s, 0, 1)
        count = evidence.over_budget
        full = count.add(observation.at_s, observation.own_us)
        return count if full and evidence.shares.reach(self._over_budget.least_share) else None

    def note_steps(self, observation: RollupObservation) -> None:
        """Note how many steps a signature makes, if there is anything against it."""
        evidence = self._by_signature.get(observation.origin.signature)
        if evidence is not None:
            evidence.shares.add(observation.at_s, observation.steps, 0)

    def count_offence(self, observation: OffenceObservation) -> WindowCount | None:
        """Count what the engine's watchdog said; the count when it is enough.

        A grammar that timed out while another one's, asked for earlier, did so on the same replica may only have waited
        behind it: it isn't counted.
        """
        origin = observation.origin
        if observation.limit is Limit.asked or (observation.limit is Limit.compile and self._waited(observation)):
            return None
        count = self._of(origin.signature).aborts
        return count if count.add(observation.at_s, observation.own_us) else None

    def forget(self, signature: str) -> None:
        """Begin anew: its breaker has opened, or was released."""
        self._by_signature.pop(signature, None)

    def _of(self, signature: str) -> Evidence:
        evidence = self._by_signature.get(signature)
        if evidence is None:
            evidence = self._by_signature[signature] = Evidence(
                WindowCount(self._over_budget.steps, self._over_budget.window_s),
                WindowCount(self._aborts.count, self._aborts.window_s),
                Shares(self._over_budget.window_s),
            )
            if len(self._by_signature) > self._capacity:
                self._by_signature.popitem(last=False)
        else:
            self._by_signature.move_to_end(signature)
        return evidence

    def _waited(self, observation: OffenceObservation) -> bool:
        origin = observation.origin
        blamed, until_s = self._compile_blames.get(origin.replica, ("", float("-inf")))
        if observation.at_s <= until_s and blamed != origin.signature:
            return True
        if len(self._compile_blames) >= _REPLICAS:
            self._compile_blames.clear()
        self._compile_blames[origin.replica] = (origin.signature, observation.at_s + observation.limit_us / 1e6)
        return False


_REPLICAS = 10_000
"""Names of replicas that are remembered; more than there are, unless they change with every restart."""
