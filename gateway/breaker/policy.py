"""What the breakers hold a signature or tenant to, each number with its reason.

Data only. Step budgets and limits are the pools', and come with each observation.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OverBudget:
    """`steps` steps over the pool's step budget within `window_s` trip.

    One may be a page fault or a cold cache; three within ten seconds are what the request does.

    least_share: of all steps of the signature that roll-ups tell of within the window, as far as they do: who makes
                 thousands of steps each second has three page faults, too.
    """

    steps: int = 3
    window_s: float = 10.0
    least_share: float = 0.001


@dataclass(frozen=True, slots=True)
class Aborts:
    """`count` requests that the engine's own watchdog named within `window_s` trip.

    Two, because the watchdog is lenient: what it names twice has held whole batches twice.
    """

    count: int = 2
    window_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Slope:
    """Cost per token that rises with length, within one request, trips before the budget is reached.

    least_share:   of the budget: cheaper steps are not looked at.
    least_steps:   steps before anything is judged; twelve blocks of eight, so that noise can't look like a line.
    growth:        the line's end over its beginning.
    levels:        constant levels that must explain it far worse than the line: a generation that goes on to dearer
                   parts of a grammar takes a few steps up, and stays.
    lasting:       share of the slope that must still be there in its second half: a cost that levels off is no slope.
    horizon_steps: the line must cross the budget within so many further steps; else it is never reached.
    requests:      running requests that are watched at a time; beyond, the longest unseen is not watched any more.
    """

    least_share: float = 0.2
    least_steps: int = 96
    growth: float = 1.5
    levels: int = 4
    lasting: float = 0.85
    horizon_steps: int = 4000
    requests: int = 10_000


@dataclass(frozen=True, slots=True)
class Crash:
    """A signature is blamed when `replicas` different replicas died within `within_s` of receiving it.

    window_s:  between the first of the deaths and the last.
    control_s: a request of the signature that ended well this long before a death, or at any time since the first
               one, acquits it: the death had another cause.
    """

    within_s: float = 10.0
    replicas: int = 2
    window_s: float = 3600.0
    control_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Escalation:
    """`signatures` different signatures of one tenant that trip within `window_s` open the tenant's breaker.

    Five is more than an application with a bad schema and its variants has, fewer than a generator of them.
    """

    signatures: int = 5
    window_s: float = 600.0


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long a breaker stays open: `first_s`, times `factor` with each further trip, at most `max_s`.

    forgive_s: good behaviour that takes one trip back.
    forget_s:  a closed breaker is forgotten when all trips are taken back, and after so long at the latest. Must be
               less than the shared store keeps a record, whose versions begin anew after that.
    """

    first_s: float = 30.0
    factor: float = 2.0
    max_s: float = 3600.0
    forgive_s: float = 1800.0
    forget_s: float = 7 * 86_400.0

    def wait_s(self, trips: int) -> float:
        """How long to stay open after so many trips; at least one."""
        # A bounded exponent: 2.0 ** 2000 is an error, not infinity.
        return min(self.max_s, self.first_s * self.factor ** min(max(trips, 1) - 1, 64))


@dataclass(frozen=True, slots=True)
class Probing:
    """Single requests in quarantine that find out whether a signature may come back.

    close_after:  good probes that close the breaker.
    first_s, factor, max_s: between two probes; the interval grows with each good one, so that a cost that comes and
                  goes is met.
    longest_s:    a probe that still runs is judged by then; also how long its lease holds.
    settle_s:     after a probe has ended, until the feed must have told all of it.
    offer_s:      a request that was offered as a probe and got no lease: until the next one is.
    unasked_s:    half-open for so long without any request: closed.
    """

    close_after: int = 3
    first_s: float = 2.0
    factor: float = 2.0
    max_s: float = 60.0
    longest_s: float = 60.0
    settle_s: float = 2.0
    offer_s: float = 1.0
    unasked_s: float = 86_400.0

    def interval_s(self, good_probes: int) -> float:
        """From the end of one probe to the next one."""
        return min(self.max_s, self.first_s * self.factor ** min(good_probes, 64))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a probe is held to. None: any."""

    budget_us: float | None = None
    hard_limit_us: float | None = None
    compile_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept in memory.

    barred:   signatures (and tenants) that are open, half-open or pinned, about 1 KiB each. Beyond it the one that
              nobody has asked for the longest time is let go, with a line in the log; never a pinned one.
    pinned:   of them; more are refused.
    closed:   closed ones whose trips are remembered.
    evidence: signatures with something against them that is not enough.
    audit:    entries of the audit log; as many again for manual ones, which others never push out.
    """

    barred: int = 20_000
    pinned: int = 10_000
    closed: int = 20_000
    evidence: int = 50_000
    audit: int = 1000


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """All of it.

    quarantine_pool:  nothing that runs there trips anything, apart from probes.
    manual_limits:    what the probes of a signature are held to that somebody quarantined by hand.
    pinned_retry_s:   `Retry-After` of what is pinned: somebody has to release it.
    """

    quarantine_pool: str | None = "quarantine"
    over_budget: OverBudget = field(default_factory=OverBudget)
    aborts: Aborts = field(default_factory=Aborts)
    slope: Slope = field(default_factory=Slope)
    crash: Crash = field(default_factory=Crash)
    escalation: Escalation = field(default_factory=Escalation)
    back_off: BackOff = field(default_factory=BackOff)
    probing: Probing = field(default_factory=Probing)
    manual_limits: Limits = field(default_factory=Limits)
    bounds: Bounds = field(default_factory=Bounds)
    pinned_retry_s: float = 3600.0
