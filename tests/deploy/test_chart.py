"""The Helm chart, rendered by Helm's own engine: valid for Kubernetes, and its gateway.yaml for us."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
import yaml

from gateway import __version__
from gateway.control.config import Config, parse_config

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "steplane"
OLDEST, NEWEST = "1.27", "1.33"
CRDS = ("keda.sh/", "monitoring.coreos.com/", "inference.networking.k8s.io/")

MONITORED = {
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "grafanaDashboard": {"enabled": True},
    }
}
ENGINES = {
    "pools": {
        "interactive": {
            "engine": {"create": True, "args": ["--model-path", "/models/m"]},
            "autoscaling": {"kind": "keda"},
        },
        "grammar": {"engine": {"create": True, "engine": "vllm"}, "autoscaling": {"kind": "hpa"}},
        "quarantine": {"selector": "app=old-engine", "namespace": "elsewhere", "port": 8000},
    }
}
OTHERS: dict[str, Any] = {
    "redis": {"enabled": False},
    "autoscaling": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "rbac": {"create": False},
    "config": {"state": {"redis": {"url": "rediss://redis.example:6380/0", "prefix": "blue"}}, "workers": 4},
}
ENVOY: dict[str, Any] = {
    "gateway": {"enabled": False, "workers": 4},
    "epp": {
        "enabled": True,
        "envoys": [{"podSelector": {"matchLabels": {"app": "envoy"}}}],
        "inferencePool": {"create": True},
    },
}
CASES = {"as it is": {}, "monitored": MONITORED, "with engines": ENGINES, "all else": OTHERS, "asked by envoy": ENVOY}

Object = dict[str, Any]


def render(values: dict[str, Any]) -> list[Object]:
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="demo", namespace="llm")
    texts = [text for name, text in files.items() if not name.endswith(".txt")]
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def only(objects: list[Object], kind: str, name: str = "demo-steplane") -> Object:
    [found] = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def configuration(objects: list[Object]) -> Config:
    """Of the gateways, or of the endpoint pickers where there are only those."""
    [text, *_] = [each["data"]["gateway.yaml"] for each in objects if "gateway.yaml" in each.get("data", {})]
    return parse_config(text, variables={"STEPLANE_FEED_TOKEN": "secret"})


@pytest.fixture(params=CASES)
def values(request: pytest.FixtureRequest) -> dict[str, Any]:
    return CASES[request.param]


def test_helm_finds_nothing_to_complain_of() -> None:
    findings = helm.lint(str(CHART))
    assert not [each for each in findings if "ERROR" in str(each) or "WARN" in str(each)], findings


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_one_that_kubernetes_knows(values: dict[str, Any], version: str) -> None:
    for each in render(values):
        if not each["apiVersion"].startswith(CRDS):
            kubernetes_validate.validate(each, version, strict=True)


def test_the_gateway_takes_the_configuration(values: dict[str, Any]) -> None:
    config = configuration(render(values))
    assert set(config.pools) == {"interactive", "grammar", "quarantine"}


def test_engines_are_found_by_the_labels_that_the_chart_gives_them() -> None:
    objects = render(ENGINES)
    for pool in ("interactive", "grammar"):
        discover = configuration(objects).pools[pool].discover
        assert discover is not None
        assert discover.kubernetes is not None
        key, _, value = discover.kubernetes.selector.partition("=")
        template = only(objects, "Deployment", f"demo-steplane-{pool}")["spec"]["template"]
        assert template["metadata"]["labels"][key] == value
        [container] = template["spec"]["containers"]
        assert {"name": "http", "containerPort": discover.kubernetes.port} in container["ports"]


@pytest.mark.parametrize("pool", ["interactive", "grammar"])
def test_engines_are_started_as_the_launcher_wants_it(pool: str) -> None:
    objects = render(ENGINES)
    [container] = only(objects, "Deployment", f"demo-steplane-{pool}")["spec"]["template"]["spec"]["containers"]
    command = [sys.executable, "-m", "gateway.cli", "replica", "launch", "--dry-run", *container["args"]]
    done = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--host 0.0.0.0 --port 30000" in done.stdout
    engine = ENGINES["pools"][pool]["engine"].get("engine", "sglang")
    assert container["image"] == f"steplane-{engine}:latest"
    assert (REPOSITORY / "deploy" / f"{engine}.Dockerfile").is_file()


def test_existing_engines_in_another_namespace_may_be_watched() -> None:
    objects = render(ENGINES)
    discover = configuration(objects).pools["quarantine"].discover
    assert discover is not None
    assert discover.kubernetes is not None
    assert (discover.kubernetes.selector, discover.kubernetes.port) == ("app=old-engine", 8000)
    roles = [each["metadata"]["namespace"] for each in objects if each["kind"] == "Role"]
    assert roles == ["elsewhere", "llm"]
    for role in (each for each in objects if each["kind"] == "Role"):
        assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}


def test_an_endpoint_picker_is_what_envoy_and_an_inference_pool_ask() -> None:
    objects = render(ENVOY | {"pools": ENGINES["pools"]})
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Deployment"] == [
        "demo-redis",
        "demo-steplane-grammar",
        "demo-steplane-interactive",
        "demo-steplane-epp",
    ]
    [container] = only(objects, "Deployment", "demo-steplane-epp")["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["epp", "-c", "/etc/steplane/gateway.yaml"]
    config = configuration(objects)
    assert (str(config.epp.listen), config.workers) == ("0.0.0.0:9002", 1)
    assert {"name": "grpc", "containerPort": config.epp.listen.port} in container["ports"]

    pool = only(objects, "InferencePool")["spec"]
    service = only(objects, "Service", pool["endpointPickerRef"]["name"])["spec"]
    assert pool["endpointPickerRef"]["port"]["number"] in [port["port"] for port in service["ports"]]
    engine = only(objects, "Deployment", "demo-steplane-grammar")["spec"]["template"]
    assert pool["selector"]["matchLabels"].items() <= engine["metadata"]["labels"].items()
    assert pool["targetPorts"][0]["number"] in [
        port["containerPort"] for port in engine["spec"]["containers"][0]["ports"]
    ]


def test_envoy_reaches_engines_only_where_it_carries_requests() -> None:
    def sources(values: dict[str, Any]) -> list[dict[str, Any]]:
        policy = only(render(values), "NetworkPolicy", "demo-steplane-engines")["spec"]
        return [peer for rule in policy["ingress"] for peer in rule["from"]]

    [envoy] = ENVOY["epp"]["envoys"]
    assert envoy in sources(ENVOY)
    assert envoy not in sources({})


def test_a_picker_with_a_certificate_shows_it() -> None:
    objects = render(ENVOY | {"epp": ENVOY["epp"] | {"tlsSecret": "picker"}})
    pod = only(objects, "Deployment", "demo-steplane-epp")["spec"]["template"]["spec"]
    [mount] = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "tls"]
    text = only(objects, "ConfigMap", "demo-steplane-epp")["data"]["gateway.yaml"]
    assert yaml.safe_load(text)["epp"]["tls"]["certificate"].startswith(mount["mountPath"])
    assert {"name": "tls", "secret": {"secretName": "picker"}} in pod["volumes"]


def test_what_a_user_configures_goes_over_what_the_chart_makes() -> None:
    config = configuration(render(OTHERS))
    assert config.workers == 4
    assert config.state.redis is not None
    assert config.state.redis.prefix == "blue"


def test_a_pod_has_time_for_its_drain() -> None:
    objects = render({"gateway": {"drainDelaySeconds": 7, "drainSeconds": 90}})
    timeouts = configuration(objects).timeouts
    assert (timeouts.drain_delay_s, timeouts.drain_s) == (7, 90)
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 97


def test_a_pod_may_do_nothing_that_it_need_not() -> None:
    pod = only(render({}), "Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_pools_are_scaled_by_the_use_of_their_budget() -> None:
    objects = render(ENGINES)
    keda = only(objects, "ScaledObject", "demo-steplane-interactive")
    assert keda["spec"]["scaleTargetRef"]["name"] == "demo-steplane-interactive"
    assert "steplane_booked_step_seconds" in keda["spec"]["triggers"][0]["metadata"]["query"]
    hpa = only(objects, "HorizontalPodAutoscaler", "demo-steplane-grammar")
    assert hpa["spec"]["metrics"][0]["external"]["metric"]["name"] == "steplane_pool_budget_use"


def test_engines_that_run_already_are_scaled_where_they_are() -> None:
    pool = {"selector": "app=sglang", "namespace": "models", "autoscaling": {"kind": "keda", "target": "sglang-json"}}
    keda = only(render({"pools": {"grammar": pool}}), "ScaledObject", "demo-steplane-grammar")
    assert keda["spec"]["scaleTargetRef"]["name"] == "sglang-json"
    assert keda["metadata"]["namespace"] == "models"


def test_the_rules_for_prometheus_are_those_of_the_repository() -> None:
    written = [
        group["name"]
        for file in sorted((REPOSITORY / "deploy" / "alerts").glob("*.y*ml"))
        for group in yaml.safe_load(file.read_text())["groups"]
    ]
    groups = only(render(MONITORED), "PrometheusRule")["spec"]["groups"]
    assert [group["name"] for group in groups] == ["steplane-budgets", *written]


def test_the_dashboard_is_that_of_the_repository() -> None:
    files = sorted((REPOSITORY / "deploy" / "grafana").glob("*.json"))
    if not files:
        pytest.skip("there is none yet")
    data = only(render(MONITORED), "ConfigMap", "demo-steplane-dashboard")["data"]
    assert {name: json.loads(text) for name, text in data.items()} == {
        file.name: json.loads(file.read_text()) for file in files
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gatway": {}}, "gatway"),
        ({"gateway": {"workers": "many"}}, "workers"),
        ({"pools": {"interactive": {"autoscaling": {"kind": "magic"}}}}, "kind"),
        ({"pools": {"Not_A_Label": {}}}, "Not_A_Label"),
        ({"pools": {"canary": {"engine": {"create": True}}}}, "canary.engine.profile"),
        ({"pools": {"grammar": {"autoscaling": {"kind": "hpa"}}}}, "grammar.autoscaling.target"),
        ({"epp": {"enabled": True}}, "epp.envoys"),
    ],
)
def test_values_that_cannot_be_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(helm.HelmError, match=said):
        render(values)


def test_a_package_of_the_chart_has_all_that_the_folder_has(tmp_path: Path) -> None:
    """Alerts and the dashboard stand elsewhere in the repository, behind links."""
    archive = helm.package(str(CHART), destination=str(tmp_path))
    rendered = []
    for path in (archive, str(CHART)):
        with helm.Chart.load(path) as chart:
            rendered.append(chart.render(MONITORED, name="demo", namespace="llm")["steplane/templates/monitoring.yaml"])
    assert rendered[0] == rendered[1]


def test_there_is_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__
    assert f"## {__version__}" in (REPOSITORY / "CHANGELOG.md").read_text()
