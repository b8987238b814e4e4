"""From the configuration to the plans of the data plane: what holds for what a rule has sent to a pool."""

from collections.abc import Callable

from gateway.control.config import Config, PoolConfig
from gateway.control.retryconfig import HedgeConfig, overridden
from gateway.control.ruleconfig import RuleConfig
from gateway.control.tally import TTFT_BUCKETS_S, Tally
from gateway.retry.budget import Budget
from gateway.retry.deadline import DeadlineHeader
from gateway.retry.hedging import FirstBytes, Hedging
from gateway.retry.plan import Plan, Plans


def build_plans(config: Config, tally: Tally, clock: Callable[[], float]) -> Plans:
    """The plans of `config`. `tally` counts the answered requests, which budgets are a share of."""
    rules = {rule.name: rule for rule in config.rules}
    budgets: dict[str, Budget] = {}
    first_bytes: dict[str, FirstBytes] = {}

    def make(rule_name: str, pool_name: str) -> Plan:
        pool, rule = config.pools[pool_name], rules.get(rule_name)
        own = None if rule is None else rule.retry
        retry = overridden(pool.retry, own).policy()

        def of_pool() -> int:
            return sum(tally.ttft(pool_name).counts)

        def of_rule() -> int:
            return sum([sum(each.by_status_class) for key, each in tally.by_decision.items() if key.rule == rule_name])

        if own is not None and "budget" in own.model_fields_set:
            budget = Budget(retry.budget, of_rule, clock)
        else:
            budget = budgets.setdefault(pool_name, Budget(retry.budget, of_pool, clock))
        deadline_s = pool.deadline_s if rule is None or rule.deadline_s is None else rule.deadline_s
        hedge = _hedge(pool.hedge, None if rule is None else rule.hedge)
        hedging = None
        if hedge is not None and hedge.max_share > 0.0:
            learnt = first_bytes.setdefault(
                pool_name, FirstBytes(TTFT_BUCKETS_S, lambda: tally.ttft(pool_name).counts, clock)
            )
            hedging = Hedging(hedge.policy(), learnt, of_pool, clock)
        return Plan(retry, budget, hedging, deadline_s)

    header = config.deadlines.header
    parts: list[PoolConfig | RuleConfig] = [*config.pools.values(), *config.rules]
    return Plans(
        make,
        None if header is None else DeadlineHeader(header),
        has_deadlines=any(part.deadline_s is not None for part in parts),
        has_hedges=any(part.hedge is not None for part in parts),
    )


def _hedge(pool: HedgeConfig | None, rule: HedgeConfig | None) -> HedgeConfig | None:
    if pool is None:
        return rule
    return overridden(pool, rule)
