"""The price list: what each mechanism costs on each backend, and what the other hooks cost. Data and its validation.

Loads nothing: `cost_model_from` takes the plain data of `config/cost_model.yaml`, which says what each number means and
where it comes from. Knows no schema and no request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.hookcost.bill import Bill
from gateway.hookcost.vocabulary import Vocabulary, group_mask


class CostModelError(ValueError):
    """A cost model that can't be used. `key` is the path of the offending entry, as in `backends.xgrammar.step_us`."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key


@dataclass(frozen=True, slots=True)
class BackendPrices:
    """One grammar backend in one version.

    label:      what predictions for it are filed under: the name, with the version where one was asked for.
    base_compile_ms, base_step_us: what any grammar costs.
    compile_ms: milliseconds of compile per unit, by mechanism; all of them add up.
    step_us:    microseconds of a bad step per unit, by mechanism; of each the dearest place counts.
    """

    name: str
    version: str
    base_compile_ms: float
    base_step_us: float
    compile_ms: Mapping[str, float]
    step_us: Mapping[str, float]
    label: str

    def compile_of(self, bill: Bill) -> float:
        """Milliseconds, once."""
        prices = self.compile_ms
        return self.base_compile_ms + sum(
            prices[mechanism] * quantity for mechanism, quantity in bill.counts.items() if mechanism in prices
        )

    def step_of(self, bill: Bill) -> float:
        """Microseconds of one bad step of one sequence."""
        prices = self.step_us
        return self.base_step_us + sum(
            prices[mechanism] * quantity for mechanism, quantity in bill.peaks.items() if mechanism in prices
        )


@dataclass(frozen=True, slots=True)
class HookPrices:
    """Microseconds on the step thread for everything that is no grammar, per sequence and step unless the name differs.

    logprob_row, logprob_alternative: per sequence that returns logprobs, and per alternative of it.
    prompt_logprob_token, prompt_logprob_alternative: per prompt token, and per alternative of each: one step pays.
    stop, stop_byte, stop_regex: per stop string, byte of one, and stop regex.
    logit_bias: per entry. penalties: where any is asked for.
    custom_logit_processor: of unknown code, a bad guess on the safe side. hidden_states: copied to the host.
    front_end_logprob_us: not on the step thread: the API server's work per row and alternative.
    front_end_redecode_us: the same for each earlier token of a stream, in engines that decode all of them again.
    """

    logprob_row: float = 0.35
    logprob_alternative: float = 0.06
    prompt_logprob_token: float = 0.5
    prompt_logprob_alternative: float = 0.11
    stop: float = 1.2
    stop_byte: float = 0.003
    stop_regex: float = 200.0
    logit_bias: float = 0.5
    penalties: float = 5.0
    custom_logit_processor: float = 15_000.0
    hidden_states: float = 100.0
    front_end_logprob_us: float = 4.4
    front_end_redecode_us: float = 2.7


@dataclass(frozen=True, slots=True)
class CostModel:
    """Prices of all backends, the vocabulary that they hold for, and the prices of the other hooks."""

    vocabulary: Vocabulary
    backends: Mapping[str, BackendPrices]
    older: Mapping[str, tuple[tuple[tuple[int, ...], Mapping[str, Any]], ...]] = field(default_factory=dict)
    hooks: HookPrices = field(default_factory=HookPrices)

    def backend(self, name: str, version: str | None = None) -> BackendPrices:
        """The prices of a backend, in an older version with what its fixes changed undone.

        Raises:
            CostModelError: no such backend.
        """
        prices = self.backends.get(name)
        if prices is None:
            known = ", ".join(sorted(self.backends))
            raise CostModelError(f"backends.{name}", f"no such grammar backend; the cost model knows {known}")
        if version is None:
            return prices
        wanted = version_of(version)
        for before, changes in self.older.get(name, ()):
            if wanted < before:
                prices = replace(
                    prices,
                    compile_ms={**prices.compile_ms, **changes.get("compile_ms", {})},
                    step_us={**prices.step_us, **changes.get("step_us", {})},
                )
        return replace(prices, version=version, label=backend_label(name, version))


def cost_model_from(data: Mapping[str, Any]) -> CostModel:
    """A cost model from the plain data of its YAML file.

    Raises:
        CostModelError: a missing or unknown key, or a number that is none or negative.
    """
    _only(data, "cost model", {"vocabulary", "backends", "hooks"})
    vocabulary = _mapping(data, "vocabulary", "vocabulary")
    size = int(_number(vocabulary, "size", "vocabulary.size"))
    shares: dict[int, float] = {}
    for names in _mapping(vocabulary, "shares", "vocabulary.shares"):
        try:
            mask = group_mask(str(names))
        except KeyError as error:
            raise CostModelError(f"vocabulary.shares.{names}", f"no such character group: {error}") from None
        shares[mask] = _number(vocabulary["shares"], names, f"vocabulary.shares.{names}")
    backends: dict[str, BackendPrices] = {}
    older: dict[str, tuple[tuple[tuple[int, ...], Mapping[str, Any]], ...]] = {}
    for name, entry in _mapping(data, "backends", "backends").items():
        where = f"backends.{name}"
        _only(entry, where, {"version", "measured_tokens", "base", "compile_ms", "step_us", "older"})
        scale = size / _number(entry, "measured_tokens", f"{where}.measured_tokens")
        base = _mapping(entry, "base", f"{where}.base")
        backends[name] = BackendPrices(
            name,
            str(entry.get("version", "")),
            _number(base, "compile_ms", f"{where}.base.compile_ms"),
            _number(base, "step_us", f"{where}.base.step_us"),
            _prices(entry, "compile_ms", where, scale),
            _prices(entry, "step_us", where, scale),
            str(name),
        )
        changes = []
        for index, old in enumerate(entry.get("older", [])):
            at = f"{where}.older[{index}]"
            _only(old, at, {"before", "compile_ms", "step_us"})
            kinds = ("compile_ms", "step_us")
            changes.append(
                (version_of(str(old["before"])), {kind: _prices(old, kind, at, scale) for kind in kinds if kind in old})
            )
        older[name] = tuple(changes)
    hooks = data.get("hooks", {})
    _only(hooks, "hooks", set(HookPrices.__dataclass_fields__))
    return CostModel(
        Vocabulary(size, shares), backends, older, HookPrices(**{k: _number(hooks, k, f"hooks.{k}") for k in hooks})
    )


def backend_label(name: str, version: str | None = None) -> str:
    """What predictions for a backend are filed under (`Classification.by_backend`)."""
    return name if version is None else f"{name} {version}"


def version_of(text: str) -> tuple[int, ...]:
    """`0.2.6rc1` as (0, 2, 6): enough to say which side of a fix a version stands on."""
    numbers = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        numbers.append(int(digits) if digits else 0)
    return tuple(numbers)


def _only(data: object, where: str, known: set[str]) -> None:
    if not isinstance(data, Mapping):
        raise CostModelError(where, "a mapping was expected")
    for key in data:
        if key not in known:
            raise CostModelError(f"{where}.{key}", f"unknown key; known are {', '.join(sorted(known))}")


def _mapping(data: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = data.get(key)
    if not isinstance(value, Mapping):
        raise CostModelError(where, "a mapping was expected")
    return value


def _number(data: Mapping[str, Any], key: str, where: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise CostModelError(where, f"a number of at least 0 was expected, not {value!r}")
    return float(value)


def _prices(entry: Mapping[str, Any], kind: str, where: str, scale: float) -> dict[str, float]:
    prices = _mapping(entry, kind, f"{where}.{kind}")
    return {str(name): scale * _number(prices, name, f"{where}.{kind}.{name}") for name in prices}


FALLBACK = cost_model_from(
    {
        "vocabulary": {"size": 151_936, "shares": {"lower": 0.4, "space+lower": 0.3, "other": 0.3}},
        "backends": {
            "llguidance": {
                "version": "",
                "measured_tokens": 151_936,
                "base": {"compile_ms": 0.8, "step_us": 170},
                "compile_ms": {"properties": 0.03},
                "step_us": {"raw_regex": 130, "ebnf_free": 2200, "ebnf_nested_loops": 300, "ebnf_ambiguous": 50_000},
            }
        },
    }
)
"""What stands in where there is no cost model: medians by kind of grammar. Traffic flows on it and on static rules."""
