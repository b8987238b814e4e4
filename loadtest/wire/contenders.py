"""The gateways that are compared: how each is found, configured and started in front of the same replicas.

Owns one table, `CONTENDERS`. To add a gateway, add a row. Each runs as it would to be fastest: one process, logs off,
keep-alive on both sides, no delay of chunks.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENVS = ROOT / ".venvs"

_SBIN = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


@dataclass(frozen=True, slots=True)
class Site:
    """Where a gateway is to run: it listens on `port` of 127.0.0.1, its replicas on `replicas`, each a `host:port`.

    feed: whether the replicas are said to have step feeds: `auto` or `off`.
    health_s: between two looks at a replica's health.
    fill: ports of a replica and its step feed for models called `fill-*`, if there is one.
    All but the ports and the directory are for Steplane alone.
    """

    directory: Path
    port: int
    admin_port: int
    replicas: tuple[str, ...]
    feed: str = "auto"
    health_s: float = 60.0
    """HAProxy checks nothing here, and probes are no part of the data plane."""
    fill: tuple[int, int] | None = None

    @property
    def urls(self) -> list[str]:
        """Those of the replicas."""
        return [f"http://{replica}" for replica in self.replicas]


def on_loopback(ports: Iterable[int]) -> tuple[str, ...]:
    """`host:port` of servers on 127.0.0.1."""
    return tuple(f"127.0.0.1:{port}" for port in ports)


@dataclass(frozen=True, slots=True)
class Contender:
    """`command` writes what configuration it needs into the site's directory and returns what to run."""

    name: str
    command: Callable[[Site], list[str]]
    missing: Callable[[], str | None]
    """How to get the gateway where it is not installed; None where it is."""
    version: Callable[[], str]
    peer: bool = False
    """An LLM router: measured in fewer rounds, and not with --quick unless --peers asks for it."""
    slow: bool = False
    """Measured in one round, with no more streams than it keeps up with, and not at a given rate."""
    optional: bool = False
    """Only measured when --only names it."""
    install: Callable[[], None] | None = None


def _program(name: str) -> str:
    return shutil.which(name, path=_SBIN) or name


def _needs_program(name: str, package: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        if shutil.which(name, path=_SBIN):
            return None
        return f"{name} is not installed; on Debian or Ubuntu: apt-get install {package}"

    return missing


def _first_line(*command: str) -> Callable[[], str]:
    def version() -> str:
        done = subprocess.run([_program(command[0]), *command[1:]], capture_output=True, text=True, check=False)
        return (done.stdout or done.stderr).partition("\n")[0].strip()

    return version


# ---- Steplane ----

_STEPLANE = """\
listen: 127.0.0.1:{port}
admin: {{listen: 127.0.0.1:{admin_port}}}
default_pool: interactive
pools:
  interactive:
    engine: sglang
    feed: "{feed}"
    health: &often {{interval_s: {health_s:g}}}
    replicas: [{interactive}]
    step_budget_us: 1000
  grammar:
    engine: sglang
    health: *often
    replicas: [{grammar}]
    step_budget_us: 2000
    when_unavailable: {{spill: quarantine}}
  quarantine:
    engine: sglang
    health: *often
    replicas: [{quarantine}]
{fill_pool}rules:
{fill_rule}  - {{name: heavy, when: {{heavy: true}}, pool: quarantine}}
  - {{name: raw-grammar, when: {{grammar: [ebnf, regex]}}, pool: quarantine}}
  - {{name: costly, when: {{step_us: ">1000"}}, pool: quarantine}}
  - {{name: structured, when: {{grammar: any}}, pool: grammar}}
  - {{name: default, pool: interactive}}
"""


_FILL_POOL = """\
  fill:
    engine: sglang
    health: *often
    replicas: [{{url: "http://127.0.0.1:{0}", feed: "http://127.0.0.1:{1}"}}]
"""
_FILL_RULE = '  - {name: fill, when: {model: "fill-*"}, pool: fill}\n'


_COMPILED = VENVS / "compiled" / "bin" / "python"


def _compiled_missing() -> str | None:
    return None if _COMPILED.exists() else "the compiled Steplane is not built; `make bench-wire` builds it"


def _steplane(python: str) -> Callable[[Site], list[str]]:
    """Steplane as that Python has it installed; -P: not as it stands in the folder that we run in."""

    def command(site: Site) -> list[str]:
        return [python, "-P", "-m", "gateway.cli", "serve", "-c", str(_steplane_configuration(site))]

    return command


def _steplane_configuration(site: Site) -> Path:
    urls = site.urls
    path = site.directory / "gateway.yaml"
    path.write_text(
        _STEPLANE.format(
            port=site.port,
            admin_port=site.admin_port,
            interactive=", ".join(urls[:-2]),
            grammar=urls[-2],
            quarantine=urls[-1],
            feed=site.feed,
            health_s=site.health_s,
            fill_pool=_FILL_POOL.format(*site.fill) if site.fill else "",
            fill_rule=_FILL_RULE if site.fill else "",
        )
    )
    return path


# ---- HAProxy ----

_HAPROXY = """\
global
  nbthread 1
  maxconn 8000
defaults
  mode http
  option http-keep-alive
  option http-no-delay
  option forwardfor
  http-reuse always
  timeout connect 2s
  timeout client 600s
  timeout server 600s
frontend clients
  bind 127.0.0.1:{port}
  default_backend engines
backend engines
  balance leastconn
{servers}
"""


def _haproxy(site: Site) -> list[str]:
    servers = "\n".join(f"  server replica{at} {replica}" for at, replica in enumerate(site.replicas))
    path = site.directory / "haproxy.cfg"
    path.write_text(_HAPROXY.format(port=site.port, servers=servers))
    return [_program("haproxy"), "-db", "-f", str(path)]


# ---- nginx ----

_NGINX = """\
daemon off;
master_process off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 20000; }}
http {{
  access_log off;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  client_body_buffer_size 1m;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  upstream engines {{
    least_conn;
{servers}
    keepalive 1024;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_buffering off;
    }}
  }}
}}
"""


def _nginx(site: Site) -> list[str]:
    servers = "\n".join(f"    server {replica};" for replica in site.replicas)
    path = site.directory / "nginx.conf"
    path.write_text(_NGINX.format(port=site.port, directory=site.directory, servers=servers))
    return [_program("nginx"), "-e", "stderr", "-p", str(site.directory), "-c", str(path)]


# ---- the Rust routers, each in a venv of its own ----


def _wheel(
    name: str, version: str, command: Callable[[Site], list[str]], *, extra: str = "", slow: bool = False
) -> Contender:
    """A gateway from PyPI, in `.venvs/NAME`, made on first use."""
    distribution = name.lower()
    venv = VENVS / distribution
    python = venv / "bin" / "python"
    ready = venv / ".bench-ready"

    def missing() -> str | None:
        if ready.exists() or (python.exists() and _has(python, distribution)):
            return None
        return f"{name} is not installed; without --quick, or with --peers, {distribution}=={version} comes from PyPI"

    def install() -> None:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        wanted = f"{distribution}{extra}=={version}"
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", wanted], check=True)
        ready.touch()

    return Contender(name, command, missing, lambda: f"{name} {version}", peer=True, install=install, slow=slow)


def _has(python: Path, distribution: str) -> bool:
    words = [str(python), "-c", f"import importlib.metadata as m; m.version({distribution!r})"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def router_command(name: str, site: Site, policy: str = "round_robin") -> list[str]:
    """One of the routers that take the same options, by the name of its distribution."""
    where = ["--host", "127.0.0.1", "--port", str(site.port), "--prometheus-port", str(site.admin_port)]
    module = f"{name.replace('-', '_')}.launch_router"
    options = ["--policy", policy, "--log-level", "error", "--worker-urls", *site.urls]
    return [str(VENVS / name / "bin" / "python"), "-m", module, *where, *options]


def _router(name: str, version: str) -> Contender:
    return _wheel(name, version, partial(router_command, name))


# ---- LiteLLM ----


def _litellm(site: Site) -> list[str]:
    path = site.directory / "litellm.json"
    replicas = [
        {
            "model_name": "bench",
            "litellm_params": {"model": "openai/bench", "api_base": f"{url}/v1", "api_key": "none"},
        }
        for url in site.urls
    ]
    path.write_text(json.dumps({"model_list": replicas}))  # JSON is YAML
    offline = "LITELLM_LOCAL_MODEL_COST_MAP=True"
    keyless = "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true"  # checking keys would make it slower
    words = [
        "env",
        offline,
        keyless,
        "LITELLM_LOG=ERROR",
        str(VENVS / "litellm" / "bin" / "litellm"),
        "--config",
        str(path),
    ]
    return [*words, "--host", "127.0.0.1", "--port", str(site.port), "--num_workers", "1"]


CONTENDERS = (
    Contender(
        "HAProxy",
        _haproxy,
        _needs_program("haproxy", "haproxy"),
        _first_line("haproxy", "-v"),
    ),
    Contender(
        "Steplane",
        _steplane(str(_COMPILED)),
        _compiled_missing,
        _first_line(str(_COMPILED), "-P", "-m", "gateway.cli", "--version"),
    ),
    Contender(
        "Steplane (interpreted)",
        _steplane(sys.executable),
        lambda: None,
        _first_line(sys.executable, "-P", "-m", "gateway.cli", "--version"),
        optional=True,
    ),
    Contender("nginx", _nginx, _needs_program("nginx", "nginx"), _first_line("nginx", "-v")),
    _router("sglang-router", "0.3.2"),
    _router("vllm-router", "0.1.17"),
    _router("smg", "1.13.0"),
    _wheel("LiteLLM", "1.106.0", _litellm, extra="[proxy]", slow=True),
)
"""The first one is what the others are measured against."""

DIRECT = "no gateway"
"""The name under which clients are measured that ask a replica themselves: what a gateway's latency is added to."""
