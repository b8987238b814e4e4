"""What the headline's runs came to: printed, drawn, and written down beside their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.headline.picture import draw
from loadtest.headline.verdict import agreement, goals, lines, table
from loadtest.report.page import page
from loadtest.report.summary import markdown
from loadtest.results.run import Run


@dataclass(frozen=True, slots=True)
class Repetition:
    """One time all of it: with pathological traffic and without, and more than can be done, if that was measured."""

    isolation: Run
    saturated: Run | None = None


def conclude(
    repetitions: list[Repetition], out: Path, picture: Path | None, missing: Sequence[str], *, forgive: bool
) -> int:
    """Print table, goals and who is missing; 1 where a goal was missed, unless that is forgiven."""
    found = [lines(each.isolation, each.saturated) for each in repetitions]
    last = repetitions[-1]
    text = markdown(last.isolation)
    (out / "headline.md").write_text(text, encoding="utf-8")
    (out / "headline.html").write_text(page(last.isolation), encoding="utf-8")
    if last.saturated is not None:
        (out / "saturated.html").write_text(page(last.saturated), encoding="utf-8")
    if picture is not None:
        draw(found[-1], picture)
    print(text)
    print(table(found[-1]), end="\n\n")
    judged = []
    for number, each in enumerate(found, 1):
        if len(found) > 1:
            print(f"Run {number} of {len(found)}:")
        of_run = goals(each)
        print(*of_run, sep="\n", end="\n\n")
        judged += of_run
    if len(found) > 1:
        apart = agreement(found)
        print("Between the runs:", *apart, sep="\n", end="\n\n")
        judged += [goal for goal in apart if goal.promised]
    for line in missing:
        print(line)
    missed = sum(not goal.met for goal in judged)
    print(f"{len(judged) - missed} of {len(judged)} goals are met. Results, summary and pages: {out}")
    return 0 if forgive or not missed else 1
