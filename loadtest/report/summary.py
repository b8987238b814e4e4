"""Results as Markdown: what each target did with each class, and what hostile traffic did to the others."""

import math
from collections.abc import Sequence

from loadtest.results.ratios import CALM, HOSTILE, goodput_per_s, ratios
from loadtest.results.run import Run

_LATE_MS = 5.0
"""Above this (p99) the client itself was too slow to be believed."""


def markdown(run: Run) -> str:
    """All of it."""
    parts = [f"# {run.scenario}", "", *_machine(run), ""]
    if {CALM, HOSTILE} <= set(run.phases):
        parts += ["## With hostile traffic ÷ without it", "", *isolation(run), ""]
    for phase in run.phases:
        parts += [f"## Phase {phase}", "", *_phase(run, phase), ""]
    parts += _doubts(run)
    return "\n".join(parts).rstrip() + "\n"


def isolation(run: Run) -> list[str]:
    """The ratios of every innocent class, of all rounds together."""
    lines = [
        "| class | target | p99 ITL, times | p99 TTFT, times | goodput, times | goodput of all /s | of hostile /s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in run.judged:
        for target in run.targets:
            found = ratios(run, target, name)
            everyone = goodput_per_s(run, target, HOSTILE, run.classes)
            heavy = goodput_per_s(run, target, HOSTILE, run.hostile)
            lines.append(
                f"| {name} | {target} | **{_number(found.itl_p99)}** | {_number(found.ttft_p99)} "
                f"| {_number(found.goodput)} | {_number(everyone)} | {_number(heavy)} |"
            )
    return lines


def _phase(run: Run, phase: str) -> list[str]:
    lines = [
        "| class | target | asked | failed | TTFT p50 / p99 ms | ITL p50 / p99 / max ms "
        "| p99 of streams' p99 | E2E p50 / p99 s | good | goodput /s | valid |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in run.classes:
        for target in run.targets:
            each = run.figures(target, phase, name)
            if not each.asked:
                continue
            e2e = " / ".join(_number(each.e2e_ms.quantile(share) / 1e3) for share in (0.5, 0.99))
            ttft = " / ".join(_number(each.ttft_ms.quantile(share)) for share in (0.5, 0.99))
            itl = " / ".join(_number(each.itl_ms.quantile(share)) for share in (0.5, 0.99, 1.0))
            valid = f"{each.validated - each.invalid} of {each.validated}" if each.validated else "-"
            lines.append(
                f"| {name} | {target} | {each.asked} | {each.failed} | {ttft} | {itl} "
                f"| {_number(each.stream_itl_p99_ms.quantile(0.99))} | {e2e} | {each.good / each.asked:.0%} "
                f"| {_number(each.goodput_per_s)} | {valid} |"
            )
    lines += ["", *_steps(run, phase)]
    return lines


def _steps(run: Run, phase: str) -> list[str]:
    rows = []
    for target in run.targets:
        steps = run.steps(target, phase)
        if steps.count:
            cells = [_number(getattr(steps, name).quantile(0.99)) for name in ("step_us", "forward_us", "hook_us")]
            dear = max(steps.own_us.items(), key=lambda each: each[1].quantile(0.99), default=None)
            cells.append(f"{dear[0]}, {_number(dear[1].quantile(0.99))}" if dear else "-")
            cells.append(_number(run.delivered_per_s(target, phase)))
            rows.append(f"| {target} | {steps.count} | {' | '.join(cells)} |")
    if not rows:
        return []
    return [
        "| target | steps | step p99 µs | forward p99 µs | hooks p99 µs | dearest class, p99 µs | tokens /s |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]


def _machine(run: Run) -> Sequence[str]:
    rounds = max((len(run.rounds(target)) for target in run.targets), default=0)
    machine = f"{run.machine['processor']}, {run.machine['cores']} cores"
    return [f"{machine}; {rounds} rounds. Times are from the moment at which a request was due."]


def _doubts(run: Run) -> list[str]:
    lines = []
    for target in run.targets:
        for phase in run.phases:
            late = max((run.figures(target, phase, name).late_ms.quantile(0.99) for name in run.classes), key=_or_zero)
            if _or_zero(late) > _LATE_MS:
                lines.append(f"- {target}, {phase}: the client was {late:.1f} ms late (p99); its machine was too busy.")
            for name in run.classes:
                errors = run.figures(target, phase, name).errors
                lines += [f"- {target}, {phase}, {name}: {count} times {what}" for what, count in errors.most_common(3)]
    return ["## Failures and doubts", "", *lines, ""] if lines else []


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
