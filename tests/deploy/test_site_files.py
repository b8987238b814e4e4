"""What stands in deploy/ beside the chart: each file taken by the program that it is for, where that can be had."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import compose_spec
import pytest
import yaml

from gateway.control.config import parse_config

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
BESIDE_PYTHON = Path(sys.executable).parent
GATEWAYS = {
    "BIND": "127.0.0.1:18080",
    **{f"GATEWAY_{number}": "127.0.0.1:1" for number in (1, 2)},
    **{f"ADMIN_{number}": "127.0.0.1" for number in (1, 2)},
    **{f"ADMIN_PORT_{number}": "2" for number in (1, 2)},
}


def program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((str(BESIDE_PYTHON), os.environ.get("PATH", ""), "/usr/sbin")))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def takes(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], env=os.environ | variables, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["Dockerfile", "sglang.Dockerfile", "vllm.Dockerfile"])
def test_hadolint_takes_the_dockerfile(name: str) -> None:
    takes(program("hadolint"), DEPLOY / name)


def test_haproxy_takes_its_file() -> None:
    takes(program("haproxy"), "-c", "-f", DEPLOY / "haproxy" / "haproxy.cfg", **GATEWAYS)


def test_nginx_takes_its_file(tmp_path: Path) -> None:
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{ include {DEPLOY}/nginx/steplane.conf; }}\n")
    takes(program("nginx"), "-t", "-e", "stderr", "-c", file)


def test_envoy_takes_its_file() -> None:
    takes(program("envoy"), "--mode", "validate", "-c", DEPLOY / "envoy" / "envoy.yaml")


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "steplane.service"
    text = (DEPLOY / "systemd" / "steplane.service").read_text()
    unit.write_text(text.replace("/opt/steplane/bin/steplane", "/bin/true"))
    analyze = program("systemd-analyze")
    assert "Failed to parse" not in takes(analyze, "verify", unit)
    assert "OK" in takes(analyze, "security", "--offline=true", "--threshold=20", unit).splitlines()[-1]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def with_the_engine() -> str:
    """compose.yaml as somebody has it who takes away the marks of comments before the real engine."""
    text = (DEPLOY / "compose.yaml").read_text()
    return re.sub(r"^  # (?=(?: {2})*[A-Za-z_]+:)", "  ", text, flags=re.MULTILINE)


@pytest.mark.parametrize("text", [(DEPLOY / "compose.yaml").read_text(), with_the_engine()], ids=["as it is", "engine"])
def test_compose_takes_its_file(text: str) -> None:
    """By the specification: an unknown key, a service, network or volume that is not there, would be refused."""
    site = compose_spec.PyOptions(apply_merge=True).from_yaml(text)
    site.validate()
    assert ("sglang" in site.service_names()) == ("\n  sglang:" in text)


def test_promtool_takes_what_prometheus_reads(tmp_path: Path) -> None:
    promtool = program("promtool")
    shutil.copytree(DEPLOY / "alerts", tmp_path / "alerts")
    config = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(config.replace("/etc/prometheus/alerts", str(tmp_path / "alerts")))
    said = takes(promtool, "check", "config", tmp_path / "prometheus.yml")
    assert "rules found" in said


def test_every_file_that_compose_mounts_is_there() -> None:
    for name, service in compose()["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), (name, source)
            else:
                assert source in compose()["volumes"], (name, source)
        if build := service.get("build"):
            assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_compose_has_what_it_names() -> None:
    services = compose()["services"]
    assert {"gateway-1", "gateway-2", "redis", "prometheus", "grafana"} <= set(services)
    for service in services.values():
        assert set(service.get("depends_on", [])) <= set(services)
    # All ports stay on this machine.
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_containers_of_ours_run_without_rights_on_a_read_only_root() -> None:
    for name, service in compose()["services"].items():
        if service.get("image", "").startswith("steplane"):
            assert service["read_only"], name
            assert service["cap_drop"] == ["ALL"], name
            assert service["user"] == "65532:65532", name


def test_the_gateways_of_compose_find_their_services() -> None:
    config = parse_config(
        (DEPLOY / "compose" / "gateway.yaml").read_text(), variables={"STEPLANE_FEED_TOKEN": "secret"}
    )
    services = set(compose()["services"])
    for pool in config.pools.values():
        for replica in pool.replicas:
            assert replica.url.host in services
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {target for job in scraped for static in job["static_configs"] for target in static["targets"]}
    assert {target.split(":")[0] for target in targets} <= services


def test_the_image_installs_extras_that_there_are() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    [extras] = re.findall(r"^ARG EXTRAS=(\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    asked = {*extras.split(","), compose()["services"]["grammar"]["build"]["args"]["EXTRAS"]}
    assert asked <= set(project["optional-dependencies"])


def test_what_the_image_is_built_from_is_let_in() -> None:
    kept = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    needed = {
        *project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
        *project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"],
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
    }
    assert needed <= kept
