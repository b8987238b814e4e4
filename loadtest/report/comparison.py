"""Two runs side by side: what became better or worse from one results file to the other."""

import math

from loadtest.results.run import ResultsError, Run

_NOTABLE = 0.1


def compare(before: Run, after: Run) -> str:
    """A Markdown table of every class that both have. Raises ResultsError where they have nothing in common."""
    lines = [
        f"# {before.scenario}: before and after",
        "",
        "| target | phase | class | ITL p99 ms | TTFT p99 ms | goodput /s | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [
        _row(before, after, target, phase, name)
        for target in before.targets
        if target in after.targets
        for phase in before.phases
        if phase in after.phases
        for name in before.classes
        if name in after.classes and before.figures(target, phase, name).asked
    ]
    if not rows:
        raise ResultsError("the two runs have no target, phase and class in common: name targets alike (URL=name)")
    notes = ["", "Bold: more than 10 % apart."]
    if before.digest != after.digest:
        notes.append("**The scenarios differ**, so what differs below may be their doing.")
    return "\n".join([*lines, *rows, *notes, ""])


def _row(before: Run, after: Run, target: str, phase: str, name: str) -> str:
    old, new = (each.figures(target, phase, name) for each in (before, after))
    cells = [
        _change(old.itl_ms.quantile(0.99), new.itl_ms.quantile(0.99)),
        _change(old.ttft_ms.quantile(0.99), new.ttft_ms.quantile(0.99)),
        _change(old.goodput_per_s, new.goodput_per_s),
        f"{old.failed} → {new.failed}",
    ]
    return f"| {target} | {phase} | {name} | {' | '.join(cells)} |"


def _change(old: float, new: float) -> str:
    if math.isnan(old) or math.isnan(new):
        return "-"
    ratio = new / old if old > 0 else math.nan
    said = f"{old:.2f} → {new:.2f}" + ("" if math.isnan(ratio) else f" (x {ratio:.2f})")
    return f"**{said}**" if not math.isnan(ratio) and abs(ratio - 1) > _NOTABLE else said
