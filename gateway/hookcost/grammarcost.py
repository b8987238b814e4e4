"""What one grammar costs on each backend: the part of the prediction that hangs on the constraint alone.

So it can be remembered. Joins the bills to the prices; owns the grammar's key and shape.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from gateway.hookcost.bill import Bill
from gateway.hookcost.classification import Refusal
from gateway.hookcost.constraint import Constraint, bound_of
from gateway.hookcost.grammarbill import GrammarReader
from gateway.hookcost.policy import Policy
from gateway.hookcost.prices import BackendPrices
from gateway.hookcost.refusal import grammar_fault
from gateway.hookcost.signature import bucket, digest
from gateway.hookcost.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class BackendCost:
    """One grammar on one backend: once, at each step per sequence, and why the backend refuses it if it does."""

    compile_ms: float
    step_us: float
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class GrammarCost:
    """One grammar: its size as compact JSON or source text, its cost by backend, its key and shape.

    heavy:   why it is heavy by definition.
    refusal: the error that the policy answers it with.
    """

    size_bytes: int
    by_backend: Mapping[str, BackendCost]
    key: str
    shape: str
    heavy: str | None = None
    refusal: Refusal | None = None


_LONG_BYTES = 24 * 1024
"""A grammar whose text has taken long to parse and spell."""
_NAMELESS = frozenset(("open_object_names", "open_name_bytes", "literal_bytes", "enum_bytes", "pattern_literals"))
"""Quantities that hang on the spelling of names and literals. They are no part of the shape, so that a template filled
with random names each time has one shape."""


class GrammarPricer:
    """Prices grammars for a set of backends. The first of them decides the shape's mechanisms."""

    __slots__ = ("_backends", "_policy")

    def __init__(self, backends: tuple[BackendPrices, ...], vocabulary: Vocabulary, policy: Policy) -> None:
        self._backends = tuple((prices, GrammarReader(prices.name, vocabulary)) for prices in backends)
        self._policy = policy

    def price(self, constraint: Constraint, text: bytes, slice_work: int) -> Generator[None, None, GrammarCost]:
        """The cost of a grammar whose `canonical` form is `text`; yields between slices of the work."""
        if not text:
            heavy = f"`{constraint.param}` is nested more than 254 levels deep"
            return GrammarCost(0, _unknown(self._backends), "", f"{constraint.kind}/deep", heavy)
        size = len(text) - len(constraint.kind) - 1
        bound = bound_of(text)
        if bound is not None:
            shape = f"{constraint.kind}/{bucket(size)}"
            heavy = f"`{constraint.param}` is {bound}"
            return GrammarCost(size, _unknown(self._backends), digest("g1", text), shape, heavy)
        if size > _LONG_BYTES:
            yield
        costs: dict[str, BackendCost] = {}
        heavy_reason, refusal, shapes = None, None, []
        for prices, reader in self._backends:
            bill = yield from reader.read(constraint, slice_work)
            yield
            refusal_by_policy, heavy_by_policy = grammar_fault(bill, constraint.param, self._policy)
            refusal = refusal or refusal_by_policy
            heavy_reason = heavy_reason or bill.heavy or heavy_by_policy
            costs[prices.label] = BackendCost(prices.compile_of(bill), prices.step_of(bill), bill.refused)
            shapes.append(_shape_of(bill))
        shape = f"{constraint.kind}/{'/'.join(shapes)}"
        return GrammarCost(size, costs, digest("g1", text), shape, heavy_reason, refusal)


def _unknown(backends: tuple[tuple[BackendPrices, GrammarReader], ...]) -> Mapping[str, BackendCost]:
    return {prices.label: BackendCost(0.0, 0.0) for prices, _ in backends}


def _shape_of(bill: Bill) -> str:
    """Mechanisms with their sizes in buckets, names and literals dropped."""
    parts = [
        f"{mechanism}{bucket(round(16 * quantity))}"
        for mechanism, quantity in sorted(bill.counts.items())
        if quantity and mechanism not in _NAMELESS
    ]
    return ",".join(parts)
