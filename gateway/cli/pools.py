"""`steplane pools`: what each pool of a running gateway has, does and may do."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from gateway.cli.adminport import AdminPort
from gateway.cli.text import millis, plain_table, print_json, shown, span


def show(admin: str, *, as_json: bool) -> None:
    """Print all pools. Raises CliError."""
    answer = AdminPort(admin).get("/api/v1/pools")
    if as_json:
        print_json(answer)
        return
    figures = ("up", "runs", "waits", "oldest", "budget", "booked")
    table = plain_table("pool", *figures, "", right=figures)
    for pool in answer["pools"]:
        replicas, budget_us = pool["replicas"], pool["step_budget_us"]
        queue = pool["queue"]
        booked_us = max([each["booked_us"] for each in replicas], default=0.0)
        table.add_row(
            shown(pool["name"]),
            f"{sum(each['available'] for each in replicas)}/{len(replicas)}",
            str(pool["in_flight"]),
            str(queue["waiting"]),
            span(queue["oldest_s"]) if queue["waiting"] else "",
            "" if budget_us is None else millis(budget_us / 1e6),
            "" if budget_us is None else f"{booked_us / budget_us:.0%}",
            _remark(pool),
        )
    Console(highlight=False).print(table)


def _remark(pool: Mapping[str, Any]) -> str:
    remarks = []
    if not pool["available"]:
        spill = pool["when_unavailable"]
        where = f"spills to {shown(spill['spill'])}" if isinstance(spill, dict) else "answers 503"
        remarks.append(f"[red]nobody takes requests: {where}[/]")
    if pool["quarantine"]:
        remarks.append("quarantine")
    if pool["discovery"] is not None and pool["discovery"]["error"]:
        remarks.append(f"[yellow]members not known: {shown(pool['discovery']['error'])}[/]")
    return "; ".join(remarks)
