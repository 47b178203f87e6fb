"""Dashboards and alerts ask only for numbers that the API and Ray really give."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from ray.dashboard.modules.reporter.reporter_agent import METRICS_GAUGES

SUFFIXES = {
    "histogram": ("_bucket", "_count", "_sum"),
    "counter": ("_total",),
    "gauge": ("",),
}
# Given by Prometheus itself for every target.
ALWAYS = {"up"}


def alerts(root: Path) -> list[dict[str, Any]]:
    rules = yaml.safe_load((root / "deploy/prometheus/alerts.yml").read_text())
    return [rule for group in rules["groups"] for rule in group["rules"]]


def panels(root: Path) -> list[dict[str, Any]]:
    dashboard = json.loads((root / "deploy/grafana/dashboards/groktime.json").read_text())
    return list(dashboard["panels"])


def expressions(root: Path) -> list[str]:
    asked = [target["expr"] for panel in panels(root) for target in panel["targets"]]
    return asked + [rule["expr"] for rule in alerts(root)]


def selectors(part: Any) -> Iterator[promql.VectorSelector]:
    """Every series an expression reads."""
    if isinstance(part, promql.VectorSelector):
        yield part
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        if hasattr(part, name):
            yield from selectors(getattr(part, name))
    for argument in getattr(part, "args", ()):
        yield from selectors(argument)


@pytest.fixture(scope="module")
def exported(api: httpx.Client) -> dict[str, set[str]]:
    """Names of all series that the API exports, with their labels."""
    api.get("/health")
    api.get("/crossing", params={"suite": "tiny", "prime": 1})  # refused, and counted
    names: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(api.get("/metrics").text):
        for suffix in SUFFIXES.get(family.type, ()):
            names[family.name + suffix] = {
                label for sample in family.samples for label in sample.labels
            }
    return names


def test_every_expression_is_valid(root: Path) -> None:
    asked = expressions(root)
    assert len(asked) > 20
    for expression in asked:
        promql.parse(expression)


def test_every_series_is_exported(root: Path, exported: dict[str, set[str]]) -> None:
    of_ray = {f"ray_{name}" for name in METRICS_GAUGES}
    for expression in expressions(root):
        for selector in selectors(promql.parse(expression)):
            assert selector.name in exported.keys() | of_ray | ALWAYS, expression


def test_every_matched_label_is_one_of_the_series(
    root: Path, exported: dict[str, set[str]]
) -> None:
    matched = 0
    for expression in expressions(root):
        for selector in selectors(promql.parse(expression)):
            if selector.name not in exported or not exported[selector.name]:
                continue
            for matcher in selector.matchers.matchers:
                assert matcher.name in exported[selector.name], expression
                matched += 1
    assert matched > 3


def test_the_dashboard_shows_what_an_operator_needs(root: Path) -> None:
    titles = {panel["title"] for panel in panels(root)}
    assert titles >= {
        "Throughput",
        "Runs by state",
        "Ingest rate",
        "API latency",
        "GPU memory used",
    }


def test_the_dashboard_reads_the_provisioned_source(root: Path) -> None:
    folder = root / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yml").read_text())["datasources"]
    for panel in panels(root):
        assert panel["datasource"]["uid"] == source["uid"]
    assert len({panel["id"] for panel in panels(root)}) == len(panels(root))


def test_panels_do_not_overlap(root: Path) -> None:
    taken = set()
    for panel in panels(root):
        box = panel["gridPos"]
        for x in range(box["x"], box["x"] + box["w"]):
            for y in range(box["y"], box["y"] + box["h"]):
                assert (x, y) not in taken, panel["title"]
                assert x < 24
                taken.add((x, y))


def test_every_alert_is_explained(root: Path) -> None:
    documented = (root / "deploy/README.md").read_text()
    for rule in alerts(root):
        assert f"`{rule['alert']}`" in documented
        assert rule["labels"]["severity"] in ("page", "warn")
