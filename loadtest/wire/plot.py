"""The summary as a picture. Needs matplotlib (`pip install --group plot`), which nothing else does."""

from collections.abc import Callable, Sequence
from pathlib import Path

from loadtest.wire.summary import Line

_OURS = "#d1495b"
_OTHERS = "#8d99ae"
_FAR_APART = 20
_PANELS: tuple[tuple[str, Callable[[Line], float | None]], ...] = (
    ("CPU µs per request", lambda line: line.plain_us),
    ("CPU µs per request with a schema", lambda line: line.schema_us),
    ("CPU µs per SSE chunk", lambda line: line.chunk_us),
    ("added latency p50, 16 connections, ms", lambda line: line.added_p50_ms),
    ("requests/s on one core", lambda line: line.peak),
    ("RSS MiB", lambda line: line.rss_mib),
)


class PlotError(Exception):
    """There is no matplotlib."""


def draw(lines: Sequence[Line], path: Path) -> None:
    """Writes a PNG with a panel for each figure, its axis logarithmic where figures lie far apart. Raises PlotError."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise PlotError("matplotlib is not installed: pip install --group plot") from None
    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullLocator

    figure, axes = pyplot.subplots(2, 3, figsize=(13, 1.6 + 0.62 * len(lines)), layout="constrained")
    for panel, (title, value) in zip(axes.flat, _PANELS, strict=True):
        shown = [(line.name, amount) for line in reversed(lines) if (amount := value(line)) is not None and amount > 0]
        colours = [_OURS if name.startswith("Steplane") else _OTHERS for name, _ in shown]
        bars = panel.barh([name for name, _ in shown], [amount for _, amount in shown], color=colours)
        panel.bar_label(bars, [f"{amount:,.0f}" if amount >= 10 else f"{amount:.2f}" for _, amount in shown], padding=3)
        amounts = [amount for _, amount in shown]
        logarithmic = bool(amounts) and max(amounts) > _FAR_APART * min(amounts)
        panel.set_title(f"{title} (logarithmic)" if logarithmic else title, fontsize=10)
        if logarithmic:
            panel.set_xscale("log")
            panel.set_xlim(left=min(amounts) / 3)
        panel.margins(x=0.2)
        panel.tick_params(labelsize=8)
        panel.xaxis.set_major_locator(NullLocator())
        panel.xaxis.set_minor_locator(NullLocator())
        panel.spines[["top", "right", "bottom"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
