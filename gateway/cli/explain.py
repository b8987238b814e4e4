"""`steplane explain`: one request body, decided on paper or by a running gateway."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.cli.adminport import AdminPort
from gateway.cli.failure import REFUSED, CliError
from gateway.cli.loading import load
from gateway.control.assembly import build_router
from gateway.control.classifier import build_classifier
from gateway.control.explain import Asked, Explanation, explain, header_in, value_shown, wanted_shown
from gateway.control.figures import number
from gateway.control.shipped import shipped_file
from gateway.hookcost import Features

_MAX_CONTRIBUTIONS = 12
_MAX_RULES = 12


def run(
    file: str,
    path: str,
    *,
    as_json: bool,
    config_file: Path | None,
    admin: str | None = None,
    tenant: str | None = None,
    headers: list[str] | None = None,
) -> None:
    """Print the decision. Raises CliError when the body can't be read, Exit(3) when the request would get an error."""
    if admin is None:
        named = tuple([_header(line) for line in headers or ()])
        asked = Asked(path, _body(file), tenant=tenant or "", headers=named)
        explanation = _on_paper(asked, config_file or shipped_file("embedded.yaml"))
    elif config_file is not None:
        raise CliError("--admin and --config exclude each other: a running gateway has its own configuration")
    else:
        port = AdminPort(admin)
        explanation = port.post("/api/v1/explain", _body(file), path=path, tenant=tenant or "", header=headers or [])
    if as_json:
        typer.echo(orjson.dumps(explanation, option=orjson.OPT_INDENT_2).decode())
    else:
        _print(explanation)
    if explanation["pool"] is None:
        raise typer.Exit(REFUSED)


def _on_paper(asked: Asked, config_file: Path) -> Explanation:
    config = load(config_file)
    router, classifier = build_router(config, available=True), build_classifier(config)
    asked = replace(asked, pools=config.tenants.pools_of(asked.tenant))
    return explain(router, classifier, config.hookcost, asked)


def _header(line: str) -> tuple[str, str]:
    header = header_in(line)
    if header is None:
        raise CliError(f"--header {line}: expected a name and a value, as in --header 'x-tier: gold'")
    return header


def _body(file: str) -> bytes:
    name = "stdin" if file == "-" else file
    try:
        if file != "-":
            return Path(file).read_bytes()
        if sys.stdin is None:
            raise CliError("can't read stdin: it is closed; give the name of a file instead of -")
        return sys.stdin.buffer.read()
    except FileNotFoundError:
        raise CliError(f"can't read {name}: no such file; a request body (JSON) was expected there") from None
    except OSError as error:
        raise CliError(f"can't read {name}: {error.strerror or error}") from None


def _print(explanation: Explanation) -> None:
    console = Console(highlight=False)
    refusal = explanation["refusal"]
    if refusal is not None:
        where = f" (at {refusal['param']})" if refusal["param"] else ""
        console.print(f"[bold red]refused[/] with {refusal['status']} {refusal['code']}{escape(where)}")
        console.print(escape(refusal["message"]))
        return
    rejection = explanation["rejection"]
    if rejection is None:
        goes = f"pool [bold]{escape(explanation['pool'])}[/]"
    else:
        goes = f"[bold red]rejected[/] with {rejection['status']} {rejection['code']}"
    console.print(f"{goes}, rule [bold]{escape(explanation['route'])}[/]")
    console.print(escape(explanation["why"]))
    if explanation["when_full"]:
        console.print(
            escape(f"while that pool is full: {', then '.join(explanation['when_full'])}, if there is room to spare")
        )
    _print_rules(console, explanation["rules"])
    if explanation["changes"] is not None:
        _print_changes(console, explanation["changes"])
    console.print()
    console.print(_facts(explanation))
    if explanation["contributions"]:
        console.print()
        console.print(_contributions(explanation))
    for place in explanation["places"]:
        console.print()
        console.print(_place(place), soft_wrap=True)


def _print_rules(console: Console, rules: list[dict[str, Any]]) -> None:
    """Why the rules before the one that took it did not."""
    for rule in rules[:-1][:_MAX_RULES]:
        failed = [each for each in rule["conditions"] if not each["holds"]]
        why = "; ".join(_unlike(each["key"], each["actual"], each["wanted"]) for each in failed)
        console.print(escape(f"  not {rule['rule']}: {why}"), style="dim", soft_wrap=True)
    if len(rules) - 1 > _MAX_RULES:
        console.print(f"  and {len(rules) - 1 - _MAX_RULES} more rules; --json shows all", style="dim")


def _unlike(key: str, actual: object, wanted: object) -> str:
    return f"{key} is {value_shown(actual)}, not {wanted_shown(wanted)}"


def _print_changes(console: Console, changes: dict[str, Any]) -> None:
    """What the rule does to it on the way."""
    said = []
    if changes["body"]:
        reckoned = f"then {number(changes['step_us'])} µs each step, signature {changes['signature']}"
        said.append(f"body: {', '.join(changes['body'])} ({reckoned})")
    for key, about in (("set_headers", "sets"), ("strip_headers", "strips")):
        if changes[key]:
            said.append(f"{about} {', '.join(changes[key])} of the request")
    if changes["response_headers"]:
        said.append(f"adds {', '.join(changes['response_headers'])} to the answer")
    if changes["shadow"] is not None:
        said.append(f"sends a copy to pool {changes['shadow']}")
    for line in said:
        console.print(escape(f"  {line}"), soft_wrap=True)


def _facts(explanation: Explanation) -> Table:
    cost = explanation["cost"]
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("signature", explanation["signature"])
    if explanation["grammar_key"]:
        table.add_row("grammar key", explanation["grammar_key"])
    table.add_row("compile", f"{number(cost['compile_ms'])} ms, once")
    budget = explanation["step_budget_us"]
    within = f" (the pool's budget is {number(budget)} µs)" if budget is not None else ""
    table.add_row("each step", f"{number(cost['step_us'])} µs{within}")
    observed = explanation["observed"]
    if observed is not None:
        seen = f"observed {number(observed['mean_us'])} µs in {number(observed['steps'])} steps"
        table.add_row("", f"{seen}, predicted {number(explanation['predicted']['step_us'])} µs")
    for hook, step_us in sorted(cost["by_hook"].items(), key=lambda item: -item[1]):
        table.add_row(f"  {hook}", f"{number(step_us)} µs")
    if cost["heavy"]:
        table.add_row("heavy", escape(cost["heavy"]))
    for name, value in _asked_for(explanation["features"]).items():
        table.add_row(name, "yes" if value is True else escape(str(value)))
    return table


def _contributions(explanation: Explanation) -> Table:
    """What adds up to the cost, dearest first; what adds nothing that shows is left out."""
    backend = explanation["backend"]
    table = Table(title=f"what adds up to it on {backend['name']} {backend['version']}".rstrip(), box=None)
    table.title_justify, table.title_style, table.pad_edge = "left", "bold", False
    table.add_column("", style="dim", no_wrap=True)
    for title in ("quantity", "compile ms", "each step µs"):
        table.add_column(title, justify="right", no_wrap=True)
    shown = [each for each in explanation["contributions"] if each["compile_ms"] >= 0.01 or each["step_us"] >= 0.01]
    for each in shown[:_MAX_CONTRIBUTIONS]:
        table.add_row(
            f"{each['hook']}: {each['name']}",
            number(each["quantity"]),
            number(each["compile_ms"]) if each["compile_ms"] else "",
            number(each["step_us"]) if each["step_us"] else "",
        )
    if len(shown) > _MAX_CONTRIBUTIONS:
        rest = shown[_MAX_CONTRIBUTIONS:]
        table.add_row(
            f"{len(rest)} more",
            "",
            number(sum(each["compile_ms"] for each in rest)),
            number(sum(each["step_us"] for each in rest)),
        )
    return table


def _place(place: dict[str, Any]) -> str:
    costs = [f"{number(place['compile_ms'])} ms once"] if place["compile_ms"] >= 0.01 else []
    costs += [f"{number(place['step_us'])} µs each step"] if place["step_us"] >= 0.01 else []
    where = escape(f"{place['param']} {place['pointer'] or '(as a whole)'}")
    advice = f"\n  cheaper: {escape(place['advice'])}" if place["advice"] else ""
    return f"[bold]{where}[/]: {' and '.join(costs)} ({escape(place['mechanism'])}){advice}"


def _asked_for(features: dict[str, Any]) -> dict[str, Any]:
    """The features that say something: those that differ from a request that asks for nothing."""
    neutral = Features()
    return {name: value for name, value in features.items() if value != getattr(neutral, name)}
