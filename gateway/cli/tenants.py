"""`steplane tenants`: who may do what at a running gateway, and what each has left."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from gateway.cli.adminport import AdminPort
from gateway.cli.text import plain_table, print_json, shown
from gateway.control.figures import number


def show(admin: str, *, as_json: bool) -> None:
    """Print the tenants that are named or limited. Raises CliError."""
    answer = AdminPort(admin).get("/api/v1/tenants")
    if as_json:
        print_json(answer)
        return
    console = Console(highlight=False)
    if answer["tenants"]:
        table = plain_table("tenant", "keys", "priority", "pools", "left of its limits", right=("keys", "priority"))
        for each in answer["tenants"]:
            pools = each["pools"]
            table.add_row(
                shown(each["tenant"]) if each["named"] else f"{shown(each['tenant'])} (not named)",
                str(each["keys"]),
                str(each["priority"]),
                "any" if pools is None else shown(", ".join(pools)),
                "; ".join([_limit(name, limit) for name, limit in each["limits"].items()]) or "no limits",
            )
        console.print(table)
    else:
        console.print("No tenant is named, and none is limited.")
    if answer["require_key"]:
        console.print("Requests without a known key are answered with 401.")


def _limit(name: str, limit: Mapping[str, Any]) -> str:
    return f"{name} {number(limit['left'])} of {number(limit['burst'])}, {number(limit['per_s'])}/s"
