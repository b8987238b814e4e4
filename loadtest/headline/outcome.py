"""What the headline's runs came to: printed, drawn, and written down beside their results."""

from collections.abc import Sequence
from pathlib import Path

from loadtest.headline.picture import draw
from loadtest.headline.verdict import agreement, goals, lines, table
from loadtest.report.page import page
from loadtest.report.summary import markdown
from loadtest.results.run import Run


def conclude(runs: list[Run], out: Path, picture: Path | None, missing: Sequence[str], *, forgive: bool) -> int:
    """Print table, goals and who is missing; 1 where a goal was missed, unless that is forgiven."""
    found = [lines(run) for run in runs]
    text = markdown(runs[-1])
    (out / "headline.md").write_text(text, encoding="utf-8")
    (out / "headline.html").write_text(page(runs[-1]), encoding="utf-8")
    if picture is not None:
        draw(found[-1], picture)
    print(text)
    print(table(found[-1]), end="\n\n")
    judged = [goal for each in found for goal in goals(each)]
    if len(found) > 1:
        judged += agreement(found)
    for goal in judged:
        print(goal)
    for line in missing:
        print(line)
    print(f"\nResults, summary and page: {out}")
    return 0 if forgive or all(goal.met for goal in judged) else 1
