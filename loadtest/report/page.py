"""Results as one HTML page that needs nothing else: the plots, and the tables of the Markdown summary."""

import re
from html import escape

from loadtest.report.plots import plots
from loadtest.report.summary import markdown
from loadtest.results.run import Run

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; color: #1d1d25; }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto; }
td, th { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; }
svg { max-width: 100%; height: auto; }
"""


def page(run: Run) -> str:
    """The HTML. Raises PlotError where there is no matplotlib."""
    drawn = "\n".join(f"<h2>{escape(title)}</h2>\n{svg}" for title, svg in plots(run))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(run.scenario)}: load test</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{_tables(markdown(run))}\n{drawn}\n</body></html>\n"
    )


def _tables(text: str) -> str:
    """The little Markdown that the summary is written in: headings, tables, lists, bold words, paragraphs."""
    parts: list[str] = []
    for block in re.split(r"\n{2,}", text.strip()):
        lines = block.splitlines()
        if lines[0].startswith("#"):
            level = len(lines[0]) - len(lines[0].lstrip("#"))
            parts.append(f"<h{level}>{_words(lines[0].lstrip('# '))}</h{level}>")
        elif lines[0].startswith("|"):
            head, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line]
            body = "".join(_row(row, "td") for row in rows)
            parts.append(f"<table><thead>{_row(head, 'th')}</thead><tbody>{body}</tbody></table>")
        elif lines[0].startswith("- "):
            parts.append(f"<ul>{''.join(f'<li>{_words(line[2:])}</li>' for line in lines)}</ul>")
        else:
            parts.append(f"<p>{_words(block)}</p>")
    return "\n".join(parts)


def _row(cells: list[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{_words(cell)}</{tag}>' for cell in cells)}</tr>"


def _words(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
