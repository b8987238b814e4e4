"""What `steplane top` shows, made of the document of `/api/v1/overview`. Pure: asks nobody, reads no key."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.cli.text import millis, plain_table, shown, span

_LEVELS = {"ok": "green", "warn": "yellow", "bad": "bold red"}
_STATES = {
    "up": "default",
    "draining": "yellow",
    "resting": "yellow",
    "warming": "yellow",
    "trial": "yellow",
    "half_open": "yellow",
    "ejected": "red",
    "down": "red",
    "open": "red",
    "pinned": "magenta",
    "closed": "dim",
}
_WORST_FIRST = ("down", "ejected", "trial", "draining", "warming", "resting", "up")
_FIXED_LINES = 12
"""Of the screen, for the head, titles, blank lines, what says that there is more, and the line of keys."""
_NARROW = 100
_SHOWN_FINDINGS = 3


@dataclass(slots=True)
class Shown:
    """What there is to show. stale: why `document` is old, "" where it is not."""

    document: Mapping[str, Any]
    url: str
    paused: bool = False
    stale: str = ""


def screen(view: Shown, width: int, height: int | None) -> RenderableType:
    """The whole of it. `height`: lines that there are; None: as many as it takes."""
    document, now = view.document, float(view.document["now"])
    pools, replicas, offenders = document["pools"], document["replicas"], document["offenders"]
    findings = document["status"]["line"]["findings"]
    of_pools = None if height is None else max(2, min(len(pools), height // 3))
    known = (of_pools or 0) + min(len(findings), _SHOWN_FINDINGS)
    left = None if height is None else max(4, height - _FIXED_LINES - known)
    of_replicas = None if left is None else max(2, min(len(replicas), left // 2))
    of_offenders = None if left is None or of_replicas is None else max(2, left - of_replicas)
    keys: list[RenderableType] = [] if height is None else ["", Text("q quit   p pause", style="dim")]
    return Group(
        _head(view, now, width),
        _age(view),
        *_findings(findings, now),
        _pools(pools, of_pools, width),
        "",
        _replicas(replicas, of_replicas, now, width),
        "",
        _offenders(offenders, of_offenders, now, width),
        *keys,
    )


def _head(view: Shown, now: float, width: int) -> Table:
    about, level = view.document["gateway"]["about"], view.document["status"]["line"]["level"]
    head = Table.grid(expand=True)
    head.add_column(no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    word = {"ok": "healthy", "warn": "look at it", "bad": "something is wrong"}[level]
    left = f"[bold]Steplane[/] {shown(str(about['version']))}  [{_LEVELS[level]}]{word}[/]"
    clock = f"{datetime.fromtimestamp(now).astimezone():%H:%M:%S}"
    workers = f", {about['workers']} workers" if about.get("workers", 1) > 1 and width >= _NARROW else ""
    head.add_row(left, f"up {span(now - about['started'])}, {about['clients']} clients{workers}  {clock}")
    return head


def _age(view: Shown) -> Text:
    """Why this is not how it is now; nothing where it is."""
    said = f"[bold red]old: {shown(view.stale)}[/]" if view.stale else "[yellow]paused[/]" if view.paused else ""
    return Text.from_markup(said, overflow="ellipsis")


def _findings(findings: list[Mapping[str, Any]], now: float) -> list[Text]:
    lines = []
    for each in findings[:_SHOWN_FINDINGS]:
        said = f"{each['said']} ({span(now - each['since'])})"
        lines.append(Text.from_markup(f"[{_LEVELS[each['level']]}]{shown(said)}[/]", overflow="ellipsis"))
    for line in lines:
        line.no_wrap = True
    return lines


def _table(*columns: str, right: tuple[str, ...]) -> Table:
    table = plain_table(*columns, right=right)
    table.padding = (0, 1)
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    return table


def _cut(text: str, most: int) -> str:
    """As it can be shown, in `most` characters."""
    return shown(text if len(text) <= most else f"{text[: max(0, most - 1)]}…" if most > 0 else "")


def _pools(pools: Mapping[str, Mapping[str, Any]], most: int | None, width: int) -> Table:
    wide = width >= _NARROW
    figures = ("up", "run", "wait", "req/s", "ttft", "p99", "itl p99", "fwd", "hooks", "budget")
    more = ("itl p50", "spills", "rejects") if wide else ()
    table = _table("POOL", *figures, *more, right=(*figures, *more))
    for name, pool in list(pools.items())[:most]:
        up = pool["states"].get("up", 0)
        row = [
            _cut(name, width - 62 - (24 if wide else 0)),
            f"[{'green' if pool['available'] else 'bold red'}]{up}/{pool['replicas']}[/]",
            str(pool["in_flight"]),
            f"[yellow]{pool['waiting']}[/]" if pool["waiting"] else "0",
            f"{pool['per_s']:.1f}",
            millis(pool["ttft_p50_s"]),
            millis(pool["ttft_p99_s"]),
            millis(_seconds(pool["itl_p99_us"])),
            millis(_seconds(pool["forward_us"])),
            millis(_seconds(pool["hook_us"])),
            _share(pool["budget_use"]),
        ]
        if wide:
            row += [millis(_seconds(pool["itl_p50_us"])), f"{pool['spills']:.0f}", f"{pool['rejects']:.0f}"]
        table.add_row(*row)
    return table


def _share(use: float | None) -> str:
    """Of a step budget."""
    return "-" if use is None else f"[{'red' if use > 1 else 'default'}]{use:.0%}[/]"


def _trouble(replica: Mapping[str, Any], now: float) -> str:
    """Why it is not up; of one that is, what went wrong there last."""
    if replica["why"]:
        return str(replica["why"])
    errors = replica["last_errors"]
    if not errors:
        return ""
    latest = errors[0]
    word = latest["said"] if latest["kind"] == "answered" else latest["kind"].replace("_", " ")
    return f"{word} {span(now - latest['at'])} ago"


def _replicas(replicas: Mapping[str, Mapping[str, Any]], most: int | None, now: float, width: int) -> Table:
    """The worst first, then the busiest."""
    wide = width >= _NARROW
    figures = ("run", "req/s", "budget", "fwd", "hooks", *(("ttft p99", "itl p99") if wide else ()))
    table = _table("REPLICA", "pool", "state", *figures, "steps by", "why" if wide else "", right=figures)
    ordered = sorted(replicas.items(), key=lambda item: (_WORST_FIRST.index(item[1]["state"]), -item[1]["in_flight"]))
    for name, each in ordered[:most]:
        more = [millis(each["ttft_p99_s"]), millis(_seconds(each["itl_p99_us"]))] if wide else []
        table.add_row(
            _cut(name, 30 if wide else 18),
            _cut(each["pool"], 15 if wide else 11),
            f"[{_STATES[each['state']]}]{each['state']}[/]",
            str(each["in_flight"]),
            f"{each['per_s']:.1f}",
            _share(each["budget_use"]),
            millis(_seconds(each["forward_us"])),
            millis(_seconds(each["hook_us"])),
            *more,
            each["source"],
            _cut(_trouble(each, now), width - 116 if wide else 0),
        )
    if most is not None and len(ordered) > most:
        table.add_row(f"[dim]{len(ordered) - most} more[/]")
    return table


def _offenders(offenders: Mapping[str, Mapping[str, Any]], most: int | None, now: float, width: int) -> Table:
    """What is quarantined, then the dearest."""
    figures = ("seen", "predicted")
    table = _table("OFFENDER", "state", "for", *figures, "tenant", "what", right=figures)
    barred = [each for each in offenders.values() if each["state"] != "closed"]
    others = [each for each in offenders.values() if each["state"] == "closed"]
    others.sort(key=lambda each: -(each["observed"] or {}).get("mean_us", 0.0))
    ordered = barred + others
    for each in ordered[:most]:
        observed = each["observed"]
        table.add_row(
            _cut(each["key"], 19),
            f"[{_STATES[each['state']]}]{'-' if each['state'] == 'closed' else each['state'].replace('_', '-')}[/]",
            "" if each["since"] is None else span(now - each["since"]),
            "-" if observed is None or not observed["steps"] else millis(observed["mean_us"] / 1e6),
            millis(_seconds(each["predicted_us"])),
            _cut(each["tenant"] or "", 10),
            _cut(each["why"] or _looks(each["looks"]), width - 74),
        )
    if not ordered:
        table.add_row("[dim]none[/]")
    elif most is not None and len(ordered) > most:
        table.add_row(f"[dim]{len(ordered) - most} more[/]")
    return table


def _looks(looks: Mapping[str, Any] | None) -> str:
    title = None if looks is None else looks.get("title")
    return str(title) if title else ""


def _seconds(us: float | None) -> float | None:
    return None if us is None else us / 1e6
