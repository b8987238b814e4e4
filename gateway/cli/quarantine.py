"""`steplane quarantine`: what a running gateway has quarantined and why, and the operator's hand on it."""

import os
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.cli.adminport import AdminPort, segment
from gateway.cli.failure import CliError
from gateway.cli.text import print_json, shown, span
from gateway.control.figures import number
from gateway.hookcost.signature import is_signature

_PATH = "/api/v1/quarantine"
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d|)")
_SHOWN_AUDIT = 10
_STYLE = {"open": "red", "half_open": "yellow", "pinned": "magenta", "closed": "green"}


def list_all(admin: str, limit: int, *, as_json: bool) -> None:
    """Print what is quarantined, newest first. Raises CliError."""
    answer = AdminPort(admin).get(_PATH, limit=str(limit))
    if as_json:
        print_json(answer)
        return
    console = Console(highlight=False)
    records = answer["quarantined"]
    if not records:
        console.print("Nothing is quarantined.")
        return
    now = _time(answer["now"])
    table = Table(box=None, pad_edge=False, expand=False)
    table.add_column("key", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("since", no_wrap=True)
    table.add_column("until", no_wrap=True)
    table.add_column("why", overflow="fold")
    for record in records:
        table.add_row(
            shown(_name(record)),
            _state(record["state"]),
            f"{_ago(record['since'], now)} ago",
            _until(record, now),
            _why(record),
        )
    console.print(table)
    if answer["total"] > len(records):
        console.print(f"{answer['total'] - len(records)} more; --limit shows them")
    if answer["quarantine_pool"] is None:
        console.print("There is no quarantine pool: requests of these kinds are refused with 429.")


def show(admin: str, key: str, *, tenant: bool, as_json: bool) -> None:
    """Print all that is known of one signature or tenant. Raises CliError."""
    answer = AdminPort(admin).get(f"{_PATH}/{segment(key)}", **_kind(tenant))
    if as_json:
        print_json(answer)
        return
    console = Console(highlight=False)
    console.print(_facts(answer["record"], _time(answer["now"])))
    if answer["observed"] is not None:
        console.print()
        console.print(_costs(answer["observed"]))
    console.print()
    console.print(_running(answer["running"]))
    if answer["audit"]:
        console.print()
        console.print(_audit(answer["audit"][:_SHOWN_AUDIT], _time(answer["now"])))
        if len(answer["audit"]) > _SHOWN_AUDIT:
            console.print(f"{len(answer['audit']) - _SHOWN_AUDIT} more; --json shows them")


def log(admin: str, limit: int, *, as_json: bool) -> None:
    """Print what was done to whom, newest first. Raises CliError."""
    answer = AdminPort(admin).get("/api/v1/audit", limit=str(limit))
    if as_json:
        print_json(answer)
        return
    console = Console(highlight=False)
    if not answer["entries"]:
        console.print("Nothing has been quarantined since this gateway began.")
        return
    console.print(_audit(answer["entries"], _time(answer["now"]), with_keys=True))
    if answer["total"] > len(answer["entries"]):
        console.print(f"{answer['total'] - len(answer['entries'])} more; --limit shows them")


def add(
    admin: str, key: str, reason: str, author: str | None, wait: str | None, *, pin: bool, tenant: bool, as_json: bool
) -> None:
    """Quarantine by hand. Raises CliError."""
    if pin and wait is not None:
        raise CliError("--for and --pin exclude each other: what is pinned stays until somebody releases it")
    if not tenant and not is_signature(key):
        raise CliError(
            f"{key!r} is no cost signature (s1-…, as `steplane explain` prints it); for a tenant add --tenant"
        )
    body: dict[str, object] = {"tenant" if tenant else "signature": key, "author": _author(author), "reason": reason}
    if pin:
        body["pin"] = True
    elif wait is not None:
        body["wait_s"] = seconds(wait)
    answer = AdminPort(admin).post(_PATH, body)
    if as_json:
        print_json(answer)
        return
    record, now = answer["record"], _time(answer["now"])
    console = Console(highlight=False)
    until = "somebody releases it" if record["state"] == "pinned" else _until(record, now)
    console.print(f"[bold]{shown(_name(record))}[/] is quarantined until {until}.", soft_wrap=True)
    running = answer["running"]
    if running and not tenant:
        what = "request of it was" if running == 1 else "requests of it were"
        console.print(f"{running} {what} running: the `on_trip` of each one's pool decides.", soft_wrap=True)
    _say_whether_shared(console, answer["store"])


def release(admin: str, key: str, reason: str, author: str | None, *, tenant: bool, as_json: bool) -> None:
    """Let go by hand. Raises CliError."""
    body: dict[str, object] = {"author": _author(author), "reason": reason}
    answer = AdminPort(admin).post(f"{_PATH}/{segment(key)}/release", body, **_kind(tenant))
    if as_json:
        print_json(answer)
        return
    console = Console(highlight=False)
    name = shown(_name(answer["record"]))
    console.print(f"[bold]{name}[/] is released: it goes where the rules send it, its trips are forgotten.")
    _say_whether_shared(console, answer["store"])


def seconds(text: str) -> float:
    """A duration such as 90, 90s, 10m, 1.5h or 2d, in seconds. Raises CliError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or float(found[1]) == 0:
        raise CliError(f"--for {text}: expected a duration such as 90s, 10m, 2h or 1d")
    return float(found[1]) * _UNITS_S[found[2]]


# --- what is asked


def _kind(tenant: bool) -> dict[str, str]:
    return {"kind": "tenant"} if tenant else {}


def _author(given: str | None) -> str:
    author = given or os.environ.get("USER") or os.environ.get("LOGNAME")
    if not author:
        raise CliError("who are you? --author NAME says it, for the audit log (USER is not set)")
    return author


# --- what is shown


def _facts(record: Mapping[str, Any], now: datetime) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(record["kind"], shown(record["key"]))
    table.add_row("state", _state(record["state"]))
    if record["state"] == "closed":
        table.add_row("trips", f"{record['trips']} remembered" if record["trips"] else "none remembered")
        return table
    table.add_row("since", f"{record['since']} ({_ago(record['since'], now)} ago)")
    table.add_row("until", _until(record, now))
    table.add_row("why", _why(record))
    trip = record["trip"]
    if trip is not None:
        table.add_row("seen on", shown(f"replica {trip['replica']}, pool {trip['pool']}, request {trip['request_id']}"))
        table.add_row("tenant", shown(trip["tenant"]) or "unknown")
    if record["advice"]:
        table.add_row("to fix it", shown(record["advice"]))
    table.add_row("trips", str(record["trips"]))
    if record["state"] == "half_open":
        table.add_row("probes", f"{record['probes']}, {record['good_probes']} of them good")
    return table


def _costs(cost: Mapping[str, Any]) -> Table:
    table = _titled("what it costs", "", "mean", "p95", "max", "count", "predicted")
    predicted = cost["predicted"] or {}
    if cost["steps"]:
        table.add_row(
            "each step, µs",
            *(number(cost[name]) for name in ("mean_us", "p95_us", "max_us", "steps")),
            _predicted(predicted.get("step_us")),
        )
    if cost["compiles"]:
        table.add_row(
            "compile, ms",
            *(number(cost["compile_mean_ms"]), "", number(cost["compile_max_ms"]), number(cost["compiles"])),
            _predicted(predicted.get("compile_ms")),
        )
    kinds = sorted(cost["by_kind"].items(), key=lambda item: -item[1])
    for kind, us in kinds:
        table.add_row(f"  {shown(kind)}, µs", number(us), *[""] * 4)
    return table


def _predicted(value: float | None) -> str:
    return "" if value is None else number(value)


def _running(running: list[Mapping[str, Any]]) -> Table | str:
    if not running:
        return "None of it runs now."
    table = _titled("what runs of it now", "request", "pool", "replica", "tenant", "for")
    for each in running:
        named = (shown(each[name]) for name in ("request_id", "pool", "replica", "tenant"))
        table.add_row(*named, span(each["runs_s"]))
    return table


def _audit(entries: list[Mapping[str, Any]], now: datetime, *, with_keys: bool = False) -> Table:
    table = _titled("what was done", "", *(["key"] if with_keys else []), "by", "event", "to", "why")
    for entry in entries:
        author = entry["author"] + (" (another gateway)" if entry["foreign"] else "")
        # What has opened it is still its reason when its wait is over: once is enough.
        why = entry["why"] if entry["author"] != "breaker" or entry["after"] == "open" else ""
        key = [shown(_name(entry))] if with_keys else []
        ago = f"{_ago(entry['at'], now)} ago"
        table.add_row(ago, *key, shown(author), entry["event"], _state(entry["after"]), shown(why))
    return table


def _titled(title: str, *columns: str) -> Table:
    table = Table(title=title, box=None, pad_edge=False)
    table.title_justify, table.title_style = "left", "bold"
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _name(record: Mapping[str, Any]) -> str:
    return f"tenant {record['key']}" if record["kind"] == "tenant" else str(record["key"])


def _state(state: str) -> str:
    return f"[{_STYLE.get(state, 'bold')}]{state.replace('_', '-')}[/]"


def _why(record: Mapping[str, Any]) -> str:
    said: list[str] = [record["why"]] if record["trip"] is not None else []
    if record["author"] != "breaker":
        said.append(f"by {record['author']}: {record['reason']}")
    return shown("; ".join(said))


def _until(record: Mapping[str, Any], now: datetime) -> str:
    match record["state"]:
        case "pinned":
            return "released"
        case "half_open":
            return "probes are good"
        case "open":
            until = _time(record["until"])
            return f"{until.astimezone():%H:%M:%S}, in {span((until - now).total_seconds())}"
    return ""


def _say_whether_shared(console: Console, store: Mapping[str, Any]) -> None:
    if not store["connected"]:
        where = shown(f"{store['kind']} at {store['address']}")
        said = f"{where} can't be reached: other gateways will hear of it when it can. It holds here."
        console.print(f"[yellow]{said}[/]", soft_wrap=True)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _ago(text: str, now: datetime) -> str:
    return span((now - _time(text)).total_seconds())
