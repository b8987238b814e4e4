"""The commands and their options. What each one does is in the module of its name."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_ADMIN = "http://127.0.0.1:8081"

app = typer.Typer(
    name="steplane",
    help="Reverse proxy for SGLang and vLLM that routes by what a request costs the engine's step thread.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ConfigFile = Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="Configuration (YAML).")]
Port = Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Port for clients; 0: any free one.")]
AdminPort = Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Port for health, metrics and the API.")]
Admin = Annotated[
    str, typer.Option("--admin", metavar="URL", envvar="STEPLANE_ADMIN", help="Admin port of the gateway.")
]
Json = Annotated[bool, typer.Option("--json", help="Print what the API answers.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from gateway import __version__

        typer.echo(f"steplane {__version__}")
        raise typer.Exit


@app.callback()
def steplane(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Where options of all commands would go."""


@app.command()
def up(port: Port = 8080, admin_port: AdminPort = 8081) -> None:
    """Start three simulated replicas and the gateway in front of them; Ctrl-C stops all."""
    from gateway.cli.up import run

    run(port, admin_port)


@app.command()
def serve(
    config: ConfigFile,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N|auto", help="Processes that serve clients; auto: one on each core."),
    ] = None,
) -> None:
    """Run the gateway in front of replicas that already run.

    SIGTERM ends it in good order, and once more at once. SIGUSR2 renews several workers without losing a request.
    """
    from gateway.cli.serve import run

    run(config, workers)


@app.command()
def epp(config: ConfigFile) -> None:
    """Answer Envoy, which asks where to send requests and carries them itself (docs/envoy.md)."""
    from gateway.cli.epp import run

    run(config)


@app.command(hidden=True)
def worker(channel: Annotated[int, typer.Option(help="Descriptor of the channel to the supervisor.")]) -> None:
    """Be one of the processes of `serve --workers N`, which starts them itself."""
    from gateway.cli.worker import run

    run(channel)


@app.command()
def restart(
    admin: Annotated[
        str, typer.Option("--admin", metavar="URL", envvar="STEPLANE_ADMIN", help="Admin port of the gateway.")
    ] = DEFAULT_ADMIN,
) -> None:
    """Have all workers of a running gateway renewed: new code, new configuration, no request lost."""
    from gateway.cli.restart import run

    run(admin)


@app.command()
def check(
    config: ConfigFile,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Decisions that a gateway recorded: show which its rules would change."),
    ] = None,
) -> None:
    """Check a configuration: every mistake with file, line, key and what was expected."""
    from gateway.cli.check import run

    run(config, against)


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    from gateway.cli.schema import run

    run()


@app.command()
def explain(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A request body (JSON); - reads it from stdin.")],
    path: Annotated[str, typer.Option(help="Path that the request is sent to.")] = "/v1/chat/completions",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="Configuration; without it the embedded one.")
    ] = None,
    admin: Annotated[
        str | None, typer.Option("--admin", metavar="URL", help="Ask this running gateway (its admin port) instead.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Whose request it is.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="A header of the request.")
    ] = None,
) -> None:
    """Show what the gateway would decide for a request, and why, with all replicas taken as up.

    With --admin a running gateway decides, by its own configuration and by all that it has observed and quarantined.

    Exit code 0: routed. 1: the file or the configuration can't be used. 3: the request would get an error.
    """
    from gateway.cli.explain import run

    run(file, path, as_json=as_json, config_file=config, admin=admin, tenant=tenant, headers=header)


@app.command()
def calibrate(
    grammar_backend: Annotated[
        str, typer.Option(metavar="NAME", help="What your engines run: xgrammar or llguidance.")
    ],
    tokenizer: Annotated[Path, typer.Option(help="tokenizer.json, a folder with one, or a .tiktoken file.")],
    schemas: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Your own JSON schemas, one in each *.json.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the price list goes.")] = Path("prices.yaml"),
    python: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Python of the engine's environment; without it this one.")
    ] = None,
    cost_model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Price list to start from; without it the one of Steplane.")
    ] = None,
) -> None:
    """Measure what grammars cost on this machine, and write a price list that fits it."""
    from gateway.cli.calibrate import run

    run(grammar_backend, tokenizer, schemas, out, python, cost_model)


Replica = Annotated[str, typer.Argument(metavar="REPLICA", help="Its name, as `x-steplane-replica` has it.")]


@app.command()
def drain(replica: Replica, admin: Admin = DEFAULT_ADMIN, as_json: Json = False) -> None:
    """Have a running gateway send nothing new to a replica; what runs there is finished."""
    from gateway.cli.drain import drain as run

    run(admin, replica, as_json=as_json)


@app.command()
def undrain(replica: Replica, admin: Admin = DEFAULT_ADMIN, as_json: Json = False) -> None:
    """Have a running gateway send requests to a replica again."""
    from gateway.cli.drain import undrain as run

    run(admin, replica, as_json=as_json)


@app.command()
def pools(admin: Admin = DEFAULT_ADMIN, as_json: Json = False) -> None:
    """Show the pools of a running gateway: replicas that are up, what runs and waits, the step budget."""
    from gateway.cli.pools import show

    show(admin, as_json=as_json)


@app.command()
def replicas(
    admin: Admin = DEFAULT_ADMIN,
    pool: Annotated[str | None, typer.Option("--pool", metavar="NAME", help="Only those of this pool.")] = None,
    as_json: Json = False,
) -> None:
    """Show the replicas of a running gateway: their state and why, what runs, and how their steps are known."""
    from gateway.cli.replicas import show

    show(admin, pool, as_json=as_json)


@app.command()
def tenants(admin: Admin = DEFAULT_ADMIN, as_json: Json = False) -> None:
    """Show the tenants of a running gateway: their rights, and what is left of their limits."""
    from gateway.cli.tenants import show

    show(admin, as_json=as_json)


@app.command()
def top(
    admin: Admin = DEFAULT_ADMIN,
    every: Annotated[float, typer.Option(min=0.2, max=60, metavar="S", help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: Json = False,
) -> None:
    """Watch a running gateway live: is anything wrong, pools, replicas, offenders. q ends, p pauses."""
    from gateway.cli.top import run

    run(admin, every, once=once, as_json=as_json)


replica_app = typer.Typer(help="What runs beside an engine.", no_args_is_help=True)
app.add_typer(replica_app, name="replica")


@replica_app.command(context_settings={"ignore_unknown_options": True})
def launch(
    arguments: Annotated[list[str], typer.Argument(metavar="-- ARGUMENTS", help="The engine's flags, or its command.")],
    pool: Annotated[str, typer.Option(help="Pool that the replica is for; names a profile.")],
    engine: Annotated[str | None, typer.Option(help="sglang or vllm, where the command does not say it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the command.")] = False,
) -> None:
    """Start an engine with the flags that suit its pool, and print them with the reasons."""
    from gateway.cli.launch import run

    run(pool, engine, arguments, dry_run=dry_run)


quarantine_app = typer.Typer(
    help="What a running gateway keeps apart, and why; exit code 1 where it can't be asked or says no.",
    no_args_is_help=True,
)
app.add_typer(quarantine_app, name="quarantine")

Key = Annotated[str, typer.Argument(metavar="KEY", help="A cost signature (s1-…), or a tenant's name.")]
OfTenant = Annotated[bool, typer.Option("--tenant", help="KEY is a tenant's name.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; goes into the audit log.")]
Author = Annotated[
    str | None, typer.Option("--author", metavar="NAME", help="Who, for the audit log; without it $USER.")
]


@quarantine_app.command("list")
def list_quarantine(
    admin: Admin = DEFAULT_ADMIN,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 100,
    as_json: Json = False,
) -> None:
    """Show what is quarantined, newest first."""
    from gateway.cli.quarantine import list_all

    list_all(admin, limit, as_json=as_json)


@quarantine_app.command("show")
def show_quarantine(key: Key, admin: Admin = DEFAULT_ADMIN, tenant: OfTenant = False, as_json: Json = False) -> None:
    """Show one signature or tenant: why, what it costs, what runs of it, who did what."""
    from gateway.cli.quarantine import show

    show(admin, key, tenant=tenant, as_json=as_json)


@quarantine_app.command("log")
def show_log(
    admin: Admin = DEFAULT_ADMIN,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """Show who did what to whom, newest first: trips, probes and people."""
    from gateway.cli.quarantine import log

    log(admin, limit, as_json=as_json)


@quarantine_app.command("add")
def add_to_quarantine(
    key: Key,
    reason: Reason,
    wait: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="90s, 10m, 2h; without it as long as a trip lasts."),
    ] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Until somebody releases it.")] = False,
    tenant: OfTenant = False,
    author: Author = None,
    admin: Admin = DEFAULT_ADMIN,
    as_json: Json = False,
) -> None:
    """Quarantine a cost signature, or with --tenant all costly requests of a tenant."""
    from gateway.cli.quarantine import add

    add(admin, key, reason, author, wait, pin=pin, tenant=tenant, as_json=as_json)


@quarantine_app.command("release")
def release_from_quarantine(
    key: Key,
    reason: Reason,
    tenant: OfTenant = False,
    author: Author = None,
    admin: Admin = DEFAULT_ADMIN,
    as_json: Json = False,
) -> None:
    """Let a signature or tenant go at once."""
    from gateway.cli.quarantine import release

    release(admin, key, reason, author, tenant=tenant, as_json=as_json)


key_app = typer.Typer(help="API keys of tenants.", no_args_is_help=True)
app.add_typer(key_app, name="key")


@key_app.command("new")
def new_key() -> None:
    """Make a key; only its digest goes into the configuration."""
    from gateway.cli.key import new

    new()


@key_app.command("hash")
def hash_key() -> None:
    """Print the digest of the key on stdin."""
    from gateway.cli.key import show_digest

    show_digest()


loadtest_app = typer.Typer(help="Ask a fleet as clients do, and see who pays for whom.", no_args_is_help=True)
app.add_typer(loadtest_app, name="loadtest")

Results = Annotated[Path, typer.Argument(metavar="RESULTS.json", help="What `loadtest run` has written.")]


@loadtest_app.command("run")
def run_loadtest(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A YAML file, or the name of a shipped one.")],
    target: Annotated[
        list[str], typer.Option("--target", metavar="URL[=NAME]", help="What is asked; may be repeated.")
    ],
    feed: Annotated[
        list[str] | None, typer.Option("--feed", metavar="NAME=URL", help="Step feed of a replica behind a target.")
    ] = None,
    admin: Annotated[
        list[str] | None, typer.Option("--admin", metavar="NAME=URL", help="Admin port of a target that is a Steplane.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Results; an interrupted run goes on with them.")] = Path(
        "loadtest.json"
    ),
    key: Annotated[str, typer.Option(envvar="STEPLANE_LOADTEST_KEY", help="API key that targets want.")] = "",
) -> None:
    """Run a scenario at one or more targets, in turns, and print what came of it."""
    from gateway.cli.loadtest import run

    run(scenario, target, feed or [], admin or [], out, key)


@loadtest_app.command("report")
def report_loadtest(
    results: Results,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page.")] = Path("loadtest.html"),
    summary: Annotated[Path | None, typer.Option(metavar="FILE", help="A summary in Markdown, too.")] = None,
) -> None:
    """Make one HTML page of results, with plots."""
    from gateway.cli.loadtest import report

    report(results, out, summary)


@loadtest_app.command("compare")
def compare_loadtests(
    before: Results, after: Annotated[Path, typer.Argument(metavar="AFTER.json", help="A later one.")]
) -> None:
    """Show two runs side by side."""
    from gateway.cli.loadtest import compare

    compare(before, after)
