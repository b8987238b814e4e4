"""`steplane up`: the embedded default, with its three simulated replicas, in one command."""

import sys
from collections.abc import Sequence

import typer
import uvloop

from gateway.app import Gateway
from gateway.cli.run import Stop, running, unless
from gateway.cli.simulators import Simulator, Simulators, require_simulator
from gateway.control.adminconfig import AdminConfig
from gateway.control.config import Config, ReplicaConfig, parse_config
from gateway.control.listenconfig import ListenConfig
from gateway.control.logs import configure_logs
from gateway.control.network import Address, parse_origin
from gateway.control.shipped import shipped_file

_MODEL = "steplane-simulator"


def run(port: int, admin_port: int) -> None:
    """Serve until a signal. Raises CliError when a port is taken or a simulator does not start."""
    require_simulator()
    # As text: there is no file from which it could be loaded again, with the ports that it gets.
    config = parse_config(shipped_file("embedded.yaml").read_text(encoding="utf-8"))
    configure_logs(config.logs)
    sys.exit(uvloop.run(_up(config, Address("127.0.0.1", port), Address("127.0.0.1", admin_port))))


async def _up(config: Config, data: Address, admin: Address) -> int:
    hint = f"stop what uses {data} or {admin}, or choose others with --port and --admin-port"
    with Stop() as stop:
        async with (
            Simulators(list(config.pools), stop.at_once, ("--model-name", _MODEL, "--feed", "auto")) as simulators,
            # Before the processes start: a port that is taken shows at once.
            running(_with_replicas(config, simulators.all, data, admin), stop, hint) as gateway,
        ):
            typer.echo("Starting three simulated replicas ...")
            if await unless(stop.requested, _ready(gateway, simulators)):
                typer.echo(_welcome(gateway, simulators.all))
                await stop.requested.wait()
            typer.echo("\nStopping; once more to stop at once.")
        return stop.exit_code


async def _ready(gateway: Gateway, simulators: Simulators) -> None:
    await simulators.start()
    await gateway.wait_all_up()


def _with_replicas(config: Config, simulators: Sequence[Simulator], data: Address, admin: Address) -> Config:
    """The embedded configuration with the ports that were really taken: one simulator for each pool, by its name."""
    pools = {
        simulator.name: config.pools[simulator.name].model_copy(
            update={"replicas": [ReplicaConfig(url=parse_origin(simulator.url), name=simulator.name)]}
        )
        for simulator in simulators
    }
    return config.model_copy(
        update={"listen": [ListenConfig(address=data)], "admin": AdminConfig(listen=admin), "pools": pools}
    )


def _welcome(gateway: Gateway, simulators: Sequence[Simulator]) -> str:
    data, admin = Address(*gateway.data_address), Address(*gateway.admin_address)
    width = max(len(simulator.name) for simulator in simulators)
    replicas = "\n".join(f"  {each.name:<{width}}  {each.url}  (pid {each.pid})" for each in simulators)
    post = f"curl -iN http://{data}/v1/chat/completions -H 'content-type: application/json' -d"
    message = '"messages":[{"role":"user","content":"Hello"}]'
    plain = f"""{post} '{{"model":"{_MODEL}",{message},"max_tokens":64,"stream":true}}'"""
    schema = (
        '{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city","days"]}'
    )
    wanted = f'"response_format":{{"type":"json_schema","json_schema":{{"name":"trip","schema":{schema}}}}}'
    structured = f"""{post} '{{"model":"{_MODEL}",{message},"max_tokens":256,{wanted}}}'"""
    return f"""
Steplane is ready.

  clients    http://{data}
  admin      http://{admin}  (/readyz, /metrics, /api/v1/pools)

Simulated replicas, one for each pool:
{replicas}

A plain request goes to the pool interactive:

  {plain}

One with a JSON schema goes to the pool grammar (see the header x-steplane-pool):

  {structured}

What has cost too much and is quarantined, and why:

  steplane quarantine list --admin http://{admin}

Ctrl-C stops everything."""
