"""What the replicas of a pool are held to before they are trusted less. Data alone."""

from dataclasses import dataclass, field

from gateway.breaker.outlier import OutlierPolicy


@dataclass(frozen=True, slots=True)
class ReplicaPolicy:
    """What a replica is held to; 0 turns a sign off.

    consecutive_faults:  with no answer in between. Five: a deployment that restarts breaks a few connections.
    error_rate:          share of faults among what ended within one or two windows, if those were `min_requests`.
    window_s:            length of a window, for rates and for outliers.
    silence_s:           no byte and no step for so long though requests run, while another replica moves; breaks of
                         less than that do not count. Longer than the prefill of the longest prompt takes.
    max_ejected_percent: of the pool's replicas; one at the least, but never the last that is up.
    ejection_s, max_ejection_s: the first time out, and the longest.
    forgive_after_s:     closed for so long, it begins with the first time out again.
    trials:              requests at a time while half-open. trial_successes: answered well, they close it.
    trial_timeout_s:     after the first trial: what was not answered by then is lost.
    """

    consecutive_faults: int = 5
    error_rate: float = 0.5
    min_requests: int = 20
    window_s: float = 10.0
    outlier: OutlierPolicy = field(default_factory=OutlierPolicy)
    silence_s: float = 30.0
    max_ejected_percent: float = 50.0
    ejection_s: float = 5.0
    max_ejection_s: float = 300.0
    forgive_after_s: float = 300.0
    trials: int = 3
    trial_successes: int = 2
    trial_timeout_s: float = 60.0
