"""How Prometheus reads what the rules do: how often each takes a request, what CEL could not evaluate, and the copies.

Nothing is counted for this while a request runs but what is counted anyway. Labels come from the configuration.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.control.context import AdminContext
from gateway.control.families import counted


class RuleMetrics(Collector):
    """The rules of one gateway, in Prometheus' form."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        """Everything in Prometheus' form."""
        yield self._matches()
        yield self._errors()
        yield counted(
            "steplane_shadow_requests",
            "Copies of requests for another pool, by that pool and by what came of them; too_many, no_room and "
            "not_allowed (to a pool that the tenant may not use) were not sent.",
            ("pool", "outcome"),
            self._context.tally.shadows.items(),
        )

    def _matches(self) -> Metric:
        counts = Counter({rule.name: 0 for rule in self._context.router.rules})
        for (_, rule, _, _), count in self._context.tally.finished_requests().items():
            counts[rule] += count
        return counted(
            "steplane_rule_matches",
            "Requests finished, by the rule that took them; 0 for a rule that took none yet.",
            ("rule",),
            counts.items(),
        )

    def _errors(self) -> Metric:
        errors = CounterMetricFamily(
            "steplane_rule_errors",
            "Conditions in CEL that could not be evaluated and so did not hold, since the rules were last read: absent "
            "where a value that they need was not there.",
            labels=("rule", "reason"),
        )
        for rule in self._context.router.rules:
            program = rule.program
            if program is not None:
                errors.add_metric((rule.name, "absent"), program.absent)
                errors.add_metric((rule.name, "failed"), program.failed)
        return errors
