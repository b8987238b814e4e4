"""Results as plots: SVG texts that stand in a page by themselves. Needs matplotlib."""

import io
import math
from collections.abc import Callable
from typing import Any

from loadtest.results.ratios import HOSTILE
from loadtest.results.run import Run

_LOGIT_TICKS = (0.1, 0.5, 0.9, 0.99, 0.999)
_COLOURS = ("#8d99ae", "#e9a03b", "#3a7ca5", "#d1495b", "#5b8e7d", "#6a4c93")


class PlotError(Exception):
    """There is no matplotlib."""


def plots(run: Run) -> list[tuple[str, str]]:
    """Titles and SVG of all plots that the run has figures for. Raises PlotError."""
    made: list[tuple[str, Callable[[Run, Any], Any]]] = [
        ("Times between tokens, by class and target", _cdfs),
        ("Second by second", _timeline),
        ("What steps are made of", _steps),
        ("Hook time a step, as predicted and as observed", _costs),
    ]
    pyplot = _pyplot()
    found = []
    for title, draw in made:
        figure = draw(run, pyplot)
        if figure is not None:
            found.append((title, _svg(figure)))
            pyplot.close(figure)
    return found


def _pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError:
        raise PlotError("plots need matplotlib: pip install 'steplane[loadtest]'") from None
    mpl.use("Agg")
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "steplane"
    from matplotlib import pyplot

    return pyplot


def colour(run: Run, target: str) -> str:
    """The same for a target in all plots."""
    return _COLOURS[run.targets.index(target) % len(_COLOURS)]


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _cdfs(run: Run, pyplot: Any) -> Any:
    from matplotlib.ticker import LogLocator

    names = [
        name
        for name in run.classes
        if any(run.figures(target, phase, name).itl_ms.count for target in run.targets for phase in run.phases)
    ]
    if not names:
        return None
    size = (4.6 * len(run.phases), 2.6 * len(names) + 0.6)
    figure, axes = pyplot.subplots(
        len(names), len(run.phases), figsize=size, squeeze=False, sharex="row", layout="constrained"
    )
    for row, name in zip(axes, names, strict=True):
        lows: list[float] = []
        for panel, phase in zip(row, run.phases, strict=True):
            drawn = {
                target: histogram
                for target in run.targets
                if (histogram := run.figures(target, phase, name).itl_ms).count
            }
            if not drawn:
                panel.set_visible(False)
                continue
            for target, histogram in drawn.items():
                values, shares = histogram.cdf()
                shares = [min(share, 1 - 0.5 / histogram.count) for share in shares]
                panel.plot(values, shares, label=target, color=colour(run, target), linewidth=1.4)
            panel.set(xscale="log", yscale="logit", ylim=(0.05, 0.9995), title=f"{name}, {phase}", xlabel="ms")
            panel.set_yticks(_LOGIT_TICKS, [f"{tick:g}" for tick in _LOGIT_TICKS])
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            panel.minorticks_off()
            panel.grid(alpha=0.3)
            lows += [each.quantile(0.05) for each in drawn.values()]
        row[0].set_xlim(left=0.8 * min(lows))
    axes[0][0].legend(fontsize=8)
    return figure


def _timeline(run: Run, pyplot: Any) -> Any:
    if not run.judged:
        return None
    name, phase = run.judged[0], HOSTILE if HOSTILE in run.phases else run.phases[-1]
    size = (9.5, 1.7 * len(run.targets) + 0.6)
    figure, axes = pyplot.subplots(
        len(run.targets), 1, figsize=size, squeeze=False, sharex=True, sharey=True, layout="constrained"
    )
    for panel, target in zip(axes[:, 0], run.targets, strict=True):
        slices = [each for each in run.slices if each.target == target and each.phase == phase]
        start = 0
        for each in slices:
            seconds = each.timeline.get(name, [])
            at = [start + second for second, (count, _, _) in enumerate(seconds) if count]
            for place, style in ((1, "-"), (2, ":")):
                panel.plot(at, [second[place] for second in seconds if second[0]], style, color=colour(run, target))
            for when, _ in each.trips:
                panel.axvline(start + when, color="black", linewidth=0.8, linestyle="--")
            start += len(seconds) + 1
        panel.set(
            yscale="log",
            title=f"{target}: {name}, {phase}, p99 (line) and longest (dots) of each second; dashes: breaker opened",
        )
        panel.set_ylabel("ms")
        panel.title.set_fontsize(9)
        panel.grid(alpha=0.3)
    axes[-1][0].set_xlabel("s, rounds one after the other")
    return figure


def _steps(run: Run, pyplot: Any) -> Any:
    rows = [(target, phase, run.steps(target, phase)) for target in run.targets for phase in run.phases]
    rows = [row for row in rows if row[2].count]
    if not rows:
        return None
    figure, axes = pyplot.subplots(1, 2, figsize=(9.5, 0.36 * len(rows) + 1.4), sharey=True, layout="constrained")
    labels = [f"{target}, {phase}" for target, phase, _ in rows][::-1]
    for panel, title, forward, hooks in (
        (
            axes[0],
            "mean step, ms",
            [each.forward_us.mean for _, _, each in rows],
            [each.hook_us.mean for _, _, each in rows],
        ),
        (
            axes[1],
            "p99 of each, ms",
            [each.forward_us.quantile(0.99) for _, _, each in rows],
            [each.hook_us.quantile(0.99) for _, _, each in rows],
        ),
    ):
        before = [us / 1e3 for us in forward][::-1]
        panel.barh(labels, before, color="#8d99ae", label="forward pass")
        panel.barh(labels, [us / 1e3 for us in hooks][::-1], left=before, color="#d1495b", label="hooks")
        panel.set_title(title, fontsize=10)
    axes[0].legend(fontsize=8)
    return figure


def _costs(run: Run, pyplot: Any) -> Any:
    newest = {
        (each.target, cost["signature"]): cost
        for each in run.slices
        for cost in each.costs
        if cost["observed_us"] > 0 and cost["predicted_us"] > 0 and cost["steps"] >= 1
    }
    if not newest:
        return None
    figure, panel = pyplot.subplots(figsize=(5.2, 4.4), layout="constrained")
    for target in run.targets:
        costs = [cost for (name, _), cost in newest.items() if name == target]
        if costs:
            sizes = [8 + 6 * math.log10(1 + cost["steps"]) for cost in costs]
            points = ([cost["predicted_us"] for cost in costs], [cost["observed_us"] for cost in costs])
            panel.scatter(*points, s=sizes, label=target, color=colour(run, target), alpha=0.7)
    seen = [cost[side] for cost in newest.values() for side in ("predicted_us", "observed_us")]
    panel.plot([min(seen), max(seen)], [min(seen), max(seen)], color="grey", linewidth=0.8)
    panel.set(xscale="log", yscale="log", xlabel="predicted, µs", ylabel="observed, µs")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
    return figure
