"""The breaker of each replica of one pool: who is not trusted with requests for a while, and how it comes back.

Owns the counts, the windows and the state of each replica. Pure: the clock is injected, nothing is awaited; what a
transition means for the pool is done by whoever is notified. Knows no health check, except that it asks who is up.

Theory of operation. All that leads from one state to another stands in the table of replicastates.py; who is `sick` is
found by `observe…` and `tick`, from five signs: faults in a row, the share of faults in a window, first bytes or steps
far slower than the other replicas', and silence while others make progress. Open: no request for a time that doubles
with each opening. Half-open: a few trial requests at a time, and one of three things within `trial_timeout_s` of the
first: enough of them were answered well (closed), one failed or none had an answer (open again), or answers came that
say nothing (closed). So it always ends. The pool comes first: no more than a share of it is ever out, and what would
empty it is not done: a replica that is needed is closed, whatever it did.

What a request costs is not the replica's doing, and is kept out: steps are compared without their hooks, first bytes
only of requests that compile nothing, over-budget endings count for nothing, nor do faults of a signature that fails
wherever it runs. Nothing here feeds a signature's breaker.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.breaker.culprit import Culprits
from gateway.breaker.outcome import Outcome
from gateway.breaker.outlier import Samples, compare
from gateway.breaker.replicapolicy import ReplicaPolicy
from gateway.breaker.replicastates import TABLE, Event, ReplicaState, ReplicaTransition, Sign


class Answers(Protocol):
    """A count of answers of one replica."""

    answered: int


class _Member:
    """One replica. `answered` and `faults` are of this window and the one before."""

    __slots__ = (
        "answered",
        "answered_before",
        "busy_s",
        "ejections",
        "faults",
        "first_bytes",
        "good_trials",
        "held",
        "lost_trials",
        "name",
        "progress_s",
        "proof",
        "quiet_s",
        "reason",
        "run",
        "seen_s",
        "sign",
        "since_s",
        "slow_first_bytes",
        "slow_steps",
        "state",
        "steps",
        "trials_s",
        "until_s",
    )

    def __init__(self, name: str, now_s: float) -> None:
        self.name = name
        self.state = ReplicaState.closed
        self.since_s = now_s
        self.until_s = math.inf
        self.ejections = 0
        self.sign: Sign | None = None
        self.reason = ""
        self.held = ""
        """Why it was not ejected though it is sick."""
        self.progress_s = -math.inf
        self.seen_s = self.busy_s = now_s
        """When its progress was looked at last, and when requests ran on it then."""
        self.forget()

    def forget(self) -> None:
        """Begin anew with the evidence: the state has changed."""
        self.answered = self.answered_before = 0
        self.faults: deque[tuple[float, str]] = deque(maxlen=_MOST_FAULTS)
        """When, and of which signature."""
        self.run: deque[str] = deque(maxlen=_MOST_FAULTS)
        """Signatures of the faults since the last answer."""
        self.first_bytes = Samples()
        self.steps = Samples()
        self.slow_first_bytes = self.slow_steps = 0
        """Windows in a row."""
        self.trials_s: deque[float] = deque()
        """Trials that have no outcome yet, by when they began."""
        self.good_trials = 0
        self.lost_trials = 0
        """Whose clients left before it gave a sign of life."""
        self.quiet_s = 0.0
        """How long requests have run without progress. Clients leave, others come: it is the sum that counts."""
        self.proof = False
        """It gave a sign of life since it is half-open."""
        self.held = ""


_MOST_FAULTS = 500


class ReplicaBreaker:
    """The breakers of the replicas of one pool, by name. All methods belong to one event loop.

    Call `tick` about once a second: it ends times out, windows and lost trials.
    """

    def __init__(
        self,
        pool: str,
        replicas: Iterable[str],
        policy: ReplicaPolicy,
        *,
        clock: Callable[[], float],
        notify: Callable[[ReplicaTransition], None],
        is_up: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`clock` gives seconds. `is_up`: what the health checks say of a replica; `health_changed` follows a change.

        `notify` is called for each transition, after it; it may call back.
        """
        self.pool = pool
        self.policy = policy
        self._clock = clock
        self._notify = notify
        self._is_up = is_up
        now_s = clock()
        self._members = {name: _Member(name, now_s) for name in replicas}
        self._culprits = Culprits(2 * policy.window_s)
        self._window_ends_s = now_s + policy.window_s
        self._calm = True
        """No fault is remembered and all are closed: an answer needs no look."""

    # --- who is there

    def add(self, replica: str) -> None:
        """One more replica, trusted. One of that name, which it follows, is forgotten."""
        self._members[replica] = _Member(replica, self._clock())

    def remove(self, replica: str) -> None:
        """A replica has left. What it still answers is not judged; what is left of the pool may be needed now."""
        self._members.pop(replica, None)
        self.health_changed()

    def reconfigure(self, policy: ReplicaPolicy) -> None:
        """Judge by other limits from now on; what stands against a replica already, stands."""
        self.policy = policy

    def state(self, replica: str) -> ReplicaState:
        """Where a replica stands."""
        return self._members[replica].state

    # --- what is observed

    @property
    def calm(self) -> bool:
        """Nothing is wrong with any replica: an answer is no more than a count in `answers_of`."""
        return self._calm

    def answers_of(self, replica: str) -> Answers:
        """Where whoever is in a hurry counts an answer while all is `calm`, instead of `observe`."""
        return self._members[replica]

    def observe(self, replica: str, outcome: Outcome, signature: str = "", began_s: float = math.inf) -> None:
        """An attempt at a replica is over. Hot: an answer costs a count while nothing is wrong.

        signature: of the request, "" where unknown. began_s: reading of the clock when it was sent there: of a replica
        on trial only what was sent since then is judged.
        """
        member = self._members.get(replica)
        if member is None:
            return
        if outcome is Outcome.ok:
            member.answered += 1
            if self._calm:
                return
            self._culprits.answered(signature)
            member.run.clear()
            if member.state is ReplicaState.half_open:
                self._trial_ended(member, outcome, signature, began_s)
            return
        if outcome.speaks_against_replica:
            now_s = self._clock()
            self._calm = False
            # What never reached the engine can't have been the request's fault.
            blamed = signature if outcome is Outcome.fault else ""
            member.faults.append((now_s, blamed))
            member.run.append(blamed)
            if member.state is ReplicaState.closed:
                self._culprits.faulted(blamed, replica, now_s)
                self._judge_faults(member, now_s)
        if member.state is ReplicaState.half_open:
            self._trial_ended(member, outcome, signature, began_s)

    def observe_first_byte(self, replica: str, seconds: float, began_s: float = math.inf) -> None:
        """The time to the first byte of one response, of a request that has no grammar to compile."""
        member = self._members.get(replica)
        if member is None:
            return
        if member.state is ReplicaState.closed:
            member.first_bytes.add(seconds)
        elif member.state is ReplicaState.half_open and began_s >= member.since_s:
            member.proof = True

    def observe_step(self, replica: str, base_us: float) -> None:
        """One step's time without its hooks: what the requests asked for of hook work must not count."""
        member = self._members.get(replica)
        if member is not None and member.state is ReplicaState.closed:
            member.steps.add(base_us)

    def observe_progress(self, replica: str, in_flight: int, last_progress_s: float) -> None:
        """To be told before each `tick`: requests running, and when it last sent a byte, or its feed a step."""
        member = self._members[replica]
        now_s = self._clock()
        if last_progress_s > member.progress_s:
            member.progress_s = last_progress_s
            member.quiet_s = 0.0
        elif in_flight:
            member.quiet_s += now_s - member.seen_s
        elif now_s - member.busy_s > self.policy.silence_s:
            member.quiet_s = 0.0
        member.seen_s = now_s
        if in_flight:
            member.busy_s = now_s
        if member.state is ReplicaState.half_open and last_progress_s > member.since_s:
            member.proof = True

    def trial_began(self, replica: str) -> None:
        """A trial request was sent to a replica that is half-open."""
        member = self._members.get(replica)
        if member is not None and member.state is ReplicaState.half_open:
            member.trials_s.append(self._clock())

    def eject(self, replica: str, reason: str) -> str:
        """A person has found it sick: as if a sign had. Why that may not be, or "" when it is done.

        It comes back as any other does: by trials, when its time out is over.
        """
        member = self._members[replica]
        if member.state is ReplicaState.open:
            return "it is ejected already"
        refusal = self._why_not(member)
        if not refusal:
            self._sick(member, Sign.by_hand, reason, self._clock())
        return refusal

    def health_changed(self) -> None:
        """A replica came up or went down: see that the pool has somebody left."""
        if any(self._serves(member) for member in self._members.values()):
            return
        for member in self._members.values():
            if member.state is not ReplicaState.closed and self._is_up(member.name):
                self._happen(member, Event.needed, "no other replica of the pool is up")

    def tick(self) -> None:
        """Let time do its part."""
        now_s = self._clock()
        self._judge_silence(now_s)
        if now_s >= self._window_ends_s:
            self._end_window(now_s)
        for member in self._members.values():
            if member.state is ReplicaState.open and now_s >= member.until_s:
                self._happen(member, Event.served, f"{now_s - member.since_s:.0f} s out are over: it is tried")
            elif member.state is ReplicaState.half_open:
                self._judge_trials(member, now_s)
            elif member.state is ReplicaState.closed and now_s - member.since_s >= self.policy.forgive_after_s:
                member.ejections = 0
        self.health_changed()

    def snapshot(self) -> list[dict[str, object]]:
        """For the API: each replica's state, since when and why, and what stands against it."""
        now_s = self._clock()
        return [
            {
                "replica": member.name,
                "state": member.state.value,
                "since_s": now_s - member.since_s,
                "sign": member.sign.value if member.sign is not None else None,
                "reason": member.reason,
                "held": member.held or None,
                "back_in_s": max(member.until_s - now_s, 0.0) if member.state is ReplicaState.open else None,
                "ejections": member.ejections,
                "faults_in_a_row": len(member.run),
                "answered": member.answered + member.answered_before,
                "faults": len(member.faults),
                "trials_running": len(member.trials_s),
            }
            for member in self._members.values()
        ]

    # --- signs

    def _judge_faults(self, member: _Member, now_s: float) -> None:
        policy = self.policy
        is_culprit = self._culprits.is_culprit
        in_a_row = sum(not is_culprit(signature, member.name, now_s) for signature in member.run)
        if 0 < policy.consecutive_faults <= in_a_row:
            self._sick(member, Sign.faults_in_a_row, f"{in_a_row} requests failed in a row", now_s)
            return
        since_s = self._window_ends_s - 2 * policy.window_s
        faults = sum(
            at_s >= since_s and not is_culprit(signature, member.name, now_s) for at_s, signature in member.faults
        )
        ended = faults + member.answered + member.answered_before
        if policy.error_rate > 0 and ended >= policy.min_requests and faults >= policy.error_rate * ended:
            self._sick(member, Sign.error_rate, f"{faults} of the last {ended} requests failed", now_s)

    def _judge_silence(self, now_s: float) -> None:
        silence_s = self.policy.silence_s
        if silence_s <= 0:
            return
        since_s = now_s - silence_s
        if all(member.progress_s <= since_s for member in self._members.values()):
            return  # whatever holds them all up is not one replica's fault
        for member in self._members.values():
            if member.quiet_s >= silence_s and member.state is ReplicaState.closed:
                said = f"no byte and no step for {silence_s:g} s though requests ran on it; other replicas went on"
                self._sick(member, Sign.silence, said, now_s)

    def _end_window(self, now_s: float) -> None:
        outlier = self.policy.outlier
        firsts: dict[str, float] = {}
        steps: dict[str, float] = {}
        for member in self._members.values():
            if len(member.first_bytes) >= outlier.min_samples:
                firsts[member.name] = member.first_bytes.median()
            if len(member.steps) >= outlier.min_samples:
                steps[member.name] = member.steps.median()
            member.first_bytes.clear()
            member.steps.clear()
            member.answered_before, member.answered = member.answered, 0
            while member.faults and member.faults[0][0] < now_s - self.policy.window_s:
                member.faults.popleft()
        self._window_ends_s = now_s + self.policy.window_s
        self._culprits.forget_old(now_s)
        self._judge_outliers(firsts, steps, now_s)
        self._calm = not self._culprits and all(
            m.state is ReplicaState.closed and not m.faults and not m.run for m in self._members.values()
        )

    def _judge_outliers(self, firsts: dict[str, float], steps: dict[str, float], now_s: float) -> None:
        outlier = self.policy.outlier
        if outlier.windows <= 0:
            return
        for name, seen in compare(firsts, outlier, outlier.first_byte_floor_s).items():
            member = self._members[name]
            member.slow_first_bytes = member.slow_first_bytes + 1 if seen.is_outlier else 0
            if member.slow_first_bytes >= outlier.windows:
                said = f"median time to first byte {seen.own:.3g} s, others {seen.others:.3g} s"
                self._sick(member, Sign.slow_first_byte, f"{said}, {member.slow_first_bytes} windows in a row", now_s)
        for name, seen in compare(steps, outlier, outlier.step_floor_us).items():
            member = self._members[name]
            member.slow_steps = member.slow_steps + 1 if seen.is_outlier else 0
            if member.slow_steps >= outlier.windows:
                said = f"median step without hooks {seen.own / 1e3:.3g} ms, others {seen.others / 1e3:.3g} ms"
                self._sick(member, Sign.slow_steps, f"{said}, {member.slow_steps} windows in a row", now_s)

    # --- trials

    def _trial_ended(self, member: _Member, outcome: Outcome, signature: str, began_s: float) -> None:
        if began_s < member.since_s:
            return  # sent before, and nothing of what is being tried
        now_s = self._clock()
        if member.trials_s:
            member.trials_s.popleft()
        if outcome.speaks_against_replica and not self._culprits.is_culprit(signature, member.name, now_s):
            self._sick(member, Sign.trial_failed, "a trial request failed", now_s)
            return
        if outcome is not Outcome.unknown:
            member.proof = True
        elif not member.proof:
            # Clients have less patience than we: a silent replica must not stay half-open for that.
            member.lost_trials += 1
            if member.lost_trials >= self.policy.trials:
                said = f"the clients of {member.lost_trials} trial requests left without an answer"
                self._sick(member, Sign.trial_lost, said, now_s)
                return
        if outcome is Outcome.ok:
            member.good_trials += 1
            if member.good_trials >= self.policy.trial_successes:
                said = f"{member.good_trials} trial requests were answered"
                self._happen(member, Event.recovered, said)
                return
        self._happen(member, Event.answered, f"a trial request ended: {outcome.value}")

    def _judge_trials(self, member: _Member, now_s: float) -> None:
        if not member.trials_s or now_s - member.trials_s[0] < self.policy.trial_timeout_s:
            return
        if member.proof:
            self._happen(member, Event.recovered, "it answers, and nothing speaks against it any more")
        else:
            said = f"{len(member.trials_s)} trial requests had no answer within {self.policy.trial_timeout_s:g} s"
            self._sick(member, Sign.trial_lost, said, now_s)

    # --- transitions

    def _sick(self, member: _Member, sign: Sign, reason: str, now_s: float) -> None:
        refusal = self._why_not(member)
        if refusal:
            member.held = f"{reason}; not ejected: {refusal}"
            if member.state is ReplicaState.half_open:
                self._happen(member, Event.needed, f"{reason}, but {refusal}")
            return
        member.ejections += 1
        doubled_s = self.policy.ejection_s * 2.0 ** min(member.ejections - 1, 32)
        member.until_s = now_s + min(doubled_s, self.policy.max_ejection_s)
        self._happen(member, Event.sick, reason, sign)

    def _why_not(self, member: _Member) -> str:
        """Why a replica may not be ejected, or ""."""
        others = [other for other in self._members.values() if other is not member]
        if not any(self._serves(other) for other in others):
            return "no other replica of the pool is up and trusted"
        most = max(1, math.floor(len(self._members) * self.policy.max_ejected_percent / 100))
        out = sum(other.state is not ReplicaState.closed for other in others)
        return f"{out} of {len(self._members)} replicas are out already" if out >= most else ""

    def _serves(self, member: _Member) -> bool:
        return member.state is ReplicaState.closed and self._is_up(member.name)

    def _happen(self, member: _Member, event: Event, reason: str, sign: Sign | None = None) -> None:
        before = member.state
        after = TABLE[before, event]
        trials = 0
        if after is not before:
            member.state, member.since_s, member.reason, member.sign = after, self._clock(), reason, sign
            held = member.held
            member.forget()
            if event is Event.needed:
                member.held = held
        if after is not ReplicaState.closed:
            self._calm = False
        if event is Event.sick:
            self._culprits.distrusted(member.name)
        if after is ReplicaState.half_open:
            trials = max(self.policy.trials - len(member.trials_s), 0)
        until_s = member.until_s if after is ReplicaState.open else None
        self._notify(ReplicaTransition(self.pool, member.name, before, after, event, reason, sign, until_s, trials))
