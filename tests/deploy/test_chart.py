"""The Helm chart, rendered by Helm's own engine: valid for Kubernetes, and its gateway.yaml for us."""

import json
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
CRDS = ("keda.sh/", "monitoring.coreos.com/")

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
CASES = {"as it is": {}, "monitored": MONITORED, "with engines": ENGINES, "all else": OTHERS}

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
    text = only(objects, "ConfigMap")["data"]["gateway.yaml"]
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
    ],
)
def test_values_that_cannot_be_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(helm.HelmError, match=said):
        render(values)


def test_there_is_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__
    assert f"## {__version__}" in (REPOSITORY / "CHANGELOG.md").read_text()
