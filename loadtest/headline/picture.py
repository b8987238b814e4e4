"""The headline as a picture. Needs matplotlib."""

from collections.abc import Callable, Sequence
from pathlib import Path

from loadtest.headline.fronts import OURS
from loadtest.headline.verdict import Line

_OURS, _OTHERS = "#d1495b", "#8d99ae"
_PANELS: tuple[tuple[str, str, Callable[[Line], float]], ...] = (
    ("chat p99 ITL, with ÷ without\npathological traffic", "{:.2f} x", lambda line: line.itl_p99),
    ("chat p99 TTFT, with ÷ without\npathological traffic", "{:.2f} x", lambda line: line.ttft_p99),
    ("goodput under SLO with it,\nrequests/s", "{:.2f}", lambda line: line.goodput_per_s),
)


def draw(lines: Sequence[Line], path: Path) -> None:
    """Write a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(12, 0.42 * len(lines) + 1.2), sharey=True, layout="constrained")
    fronts = [line.front for line in lines][::-1]
    colours = [_OURS if front == OURS else _OTHERS for front in fronts]
    for panel, (title, form, value) in zip(axes, _PANELS, strict=True):
        amounts = [value(line) for line in lines][::-1]
        bars = panel.barh(fronts, amounts, color=colours)
        panel.bar_label(bars, [form.format(amount) for amount in amounts], padding=3)
        if form.endswith("x"):
            panel.axvline(1.0, color="black", linewidth=0.8, linestyle=":")
        panel.set_title(title, fontsize=10)
        panel.margins(x=0.2)
        panel.xaxis.set_visible(False)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
