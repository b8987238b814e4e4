"""`steplane replicas`: how each replica of a running gateway is, and why."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from gateway.cli.adminport import AdminPort
from gateway.cli.text import plain_table, print_json, shown, span

_STYLE = {
    "up": "green",
    "draining": "yellow",
    "resting": "yellow",
    "warming": "yellow",
    "ejected": "red",
    "trial": "yellow",
    "down": "red",
}


def show(admin: str, pool: str | None, *, as_json: bool) -> None:
    """Print all replicas, or those of a pool. Raises CliError."""
    answer = AdminPort(admin).get("/api/v1/replicas")
    replicas = [each for each in answer["replicas"] if pool in (None, each["pool"])]
    if as_json:
        print_json(answer | {"replicas": replicas})
        return
    console = Console(highlight=False)
    if not replicas:
        console.print("There are no replicas." if pool is None else f"Pool {shown(pool)} has no replicas.")
        return
    figures = ("runs", "booked")
    table = plain_table("replica", "pool", "state", *figures, "steps by", "engine", "why", right=figures)
    for each in replicas:
        state = state_of(each)
        budget_us = each["step_budget_us"]
        source = each["source"] or {"source": "none", "engine": "", "version": ""}
        table.add_row(
            shown(each["name"]),
            shown(each["pool"]),
            f"[{_STYLE[state]}]{state}[/] {span(each['state_age_s'])}",
            str(each["in_flight"]),
            "" if budget_us is None else f"{each['booked_us'] / budget_us:.0%}",
            source["source"],
            shown(f"{source['engine'] or each['engine']} {source['version']}".strip()),
            shown(_why(each, state)),
        )
    console.print(table)


def state_of(replica: Mapping[str, Any]) -> str:
    """One word for a replica, as the API tells of it."""
    if replica["draining"]:
        return "draining"
    if not replica["healthy"]:
        return "down"
    match replica["breaker"]["state"]:
        case "open":
            return "ejected"
        case "half_open":
            return "trial"
    if replica["warming"]:
        return "warming"
    return "resting" if replica["resting"] else "up"


def _why(replica: Mapping[str, Any], state: str) -> str:
    if state in ("ejected", "trial"):
        return str(replica["breaker"].get("reason") or "")
    return str(replica["last_error"] or "") if state == "down" else ""
