"""docs/api.md, made from the OpenAPI document and from the metrics that a gateway has: `make docs-reference` writes it.

Knows no path, no field and no metric itself.
"""

import ast
import asyncio
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric

from gateway.control.admin import REGISTRY, create_admin_app
from gateway.control.api.openapi import openapi
from gateway.workers.front import WorkerMetrics
from gateway.workers.supervisor import Supervisor, load
from tests.unit.control.admins import CONFIG, running_admin
from tests.unit.docs.markdown import KINDS, cell, escaped, literal
from tests.unit.docs.pages import REPOSITORY

FILE = REPOSITORY / "docs" / "api.md"

_HEAD = """\
# The admin port: API and metrics

Made from the code (`make docs-reference`). What clients of the gateway itself send and get is in
[clients.md](clients.md).

A gateway answers all of this at `admin.listen`; the command `steplane` asks it for most of it. For programs the same is
the OpenAPI 3.1 document at `GET /api/v1/openapi.json`. Who may ask is said in
[dashboard.md](dashboard.md#who-may-see-it): what is marked *operate* changes things and needs that role. With several
workers the supervisor answers for all of them.

An error is `{"error": {"message", "type", "code"}}`, as OpenAI's are. Beside those that stand here there are 401 (say
who you are) and 403 (you may not). Answers may have more fields than stand here.
"""
_METRICS = """\
## Metrics

All that `GET /metrics` shows; [metrics.md](metrics.md) says what they are for. A histogram has
`_bucket`, `_sum` and `_count`.

| metric | kind | labels | |
|---|---|---|---|
"""
_METHODS = {"get": "GET", "post": "POST", "put": "PUT", "patch": "PATCH", "delete": "DELETE"}
_READ_BY_POST = "/api/v1/explain"


def text() -> str:
    """The whole page."""
    document = openapi()
    lines = [_HEAD]
    operations = [
        (operation["tags"][0], _METHODS[method], path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    operations.sort(key=lambda each: (each[0] != "gateway", each[0]))
    for tag, of_tag in groupby(operations, lambda each: each[0]):
        lines += ["## The gateway itself" if tag == "gateway" else f"## `/api/v1/{tag}`", ""]
        for _, method, path, operation in of_tag:
            lines += [*_operation(method, path, operation), ""]
    lines += ["## What is sent and answered", ""]
    for name, schema in document["components"]["schemas"].items():
        lines += [*_model(name, schema), ""]
    lines.append(_METRICS + "\n".join(map(_metric, asyncio.run(metrics()))))
    return "\n".join(lines) + "\n"


async def metrics() -> list[Metric]:
    """Every family that a gateway or a supervisor shows, by name."""
    async with running_admin() as admin:
        found = list(create_admin_app(admin.context)[REGISTRY].collect())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gateway.yaml"
        file.write_text(CONFIG)
        supervisor = Supervisor(load(file))
        found += WorkerMetrics(supervisor).collect()
        await supervisor.close()
    names = {metric.name for metric in found}
    found += [metric for metric in _written() if metric.name not in names]
    return sorted(found, key=lambda metric: (not metric.name.startswith("steplane_"), metric.name))


async def labels_by_sample() -> dict[str, set[str]]:
    """By the name of every sample that `/metrics` may show, the labels that it has."""
    found: dict[str, set[str]] = {}
    for metric in await metrics():
        labels = set(_labels(metric))
        match metric.type:
            case "counter":
                found[f"{metric.name}_total"] = labels
            case "histogram":
                found[f"{metric.name}_bucket"] = labels | {"le"}
                found |= {f"{metric.name}_sum": labels, f"{metric.name}_count": labels}
            case _:
                found[metric.name] = labels
    return found


def _written() -> Iterator[Metric]:
    """Families as the code spells them: some show themselves only after a reload, or beside a Redis."""
    for file in sorted((REPOSITORY / "gateway").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id=("CounterMetricFamily" | "GaugeMetricFamily" | "HistogramMetricFamily") as family),
                    args=[ast.Constant(value=str(name)), ast.Constant(value=str(documentation)), *_],
                ):
                    yield Metric(name, documentation, family.removesuffix("MetricFamily").lower())


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    role = "" if method == "GET" or path == _READ_BY_POST else " *operate*"
    yield f"### `{method} {path}`{role}"
    yield ""
    said = operation["summary"]
    yield escaped(" ".join(filter(None, (f"{said[:1].upper()}{said[1:]}.", operation.get("description")))))
    queries = [each for each in operation["parameters"] if each["in"] == "query"]
    if queries:
        yield from ("", "| query | kind | default | |", "|---|---|---|---|")
        for each in queries:
            schema = each["schema"]
            default = f"`{literal(schema['default'])}`" if "default" in schema else ""
            yield f"| `{each['name']}` | {_kind(schema)} | {default} | {cell(each['description'])} |"
    yield ""
    sent = operation.get("requestBody")
    if sent is not None:
        yield f"- is sent: {_content(sent['content'])}{'' if sent['required'] else ', or nothing'}"
    for status, answer in operation["responses"].items():
        if status not in ("401", "403"):
            said = "" if status.startswith("2") else f": {answer['description']}"
            yield f"- {status} {_content(answer['content'])}{said}"


def _model(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if schema.get("description"):
        yield from ("", escaped(" ".join(schema["description"].split())))
    properties = schema.get("properties", {})
    if not properties:
        return
    yield from ("", "| field | kind | |", "|---|---|---|")
    for field, about in properties.items():
        if field in schema.get("required", ()):
            needed = "required" if schema.get("additionalProperties") is False else ""
        else:
            needed = f"default `{literal(about.get('default'))}`"
        yield f"| `{field}` | {_kind(about)} | {needed} |"


def _labels(metric: Metric) -> Iterable[str]:
    seen = {label: None for sample in metric.samples for label in sample.labels if label != "le"}
    return getattr(metric, "_labelnames", None) or seen


def _metric(metric: Metric) -> str:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    return f"| `{name}` | {metric.type} | {', '.join(_labels(metric))} | {cell(metric.documentation)} |"


def _content(content: dict[str, Any]) -> str:
    return " or ".join(
        _kind(each["schema"]) if media == "application/json" else f"`{media}`" for media, each in content.items()
    )


def _kind(schema: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_words(schema)))


def _words(schema: dict[str, Any]) -> Iterable[str]:
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return [word for each in alternatives for word in _words(each)]
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return [f"[{name}](#{name.lower()})"]
    if "enum" in schema:
        return [", ".join(f"`{value}`" for value in schema["enum"])]
    if "const" in schema:
        return [f"`{schema['const']}`"]
    kind = schema.get("type")
    if kind == "array":
        return [f"list of {_kind(schema.get('items', {})) or 'anything'}"]
    if kind == "object" and isinstance(inner := schema.get("additionalProperties"), dict):
        return [f"mapping to {_kind(inner) or 'anything'}"]
    return [KINDS.get(kind, kind)] if kind else []


if __name__ == "__main__":
    FILE.write_text(text())
