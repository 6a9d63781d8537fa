"""The files of `deploy/` for operators: their form, and that each metric which they use exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from gateway.telemetry import Metrics
from tests.deploy.proxies import DEPLOY

METRIC = re.compile(r"webmcp_gateway_\w+")
DURATION = re.compile(r"\d+[smh]")


def known() -> set[str]:
    """Every metric that a scrape can have, with the suffixes of its type."""
    found: set[str] = set()
    for family in Metrics().registry.collect():
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        found |= {f"{family.name}{ending}" for ending in endings}
    return found


def rules() -> list[dict[str, Any]]:
    """The alerts."""
    groups = yaml.safe_load((DEPLOY / "alerts.yaml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[str]:
    """Every expression of the dashboard and the alerts."""
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (one["query"]["query"] for one in dashboard["templating"]["list"] if isinstance(one["query"], dict))
    yield from (rule["expr"] for rule in rules())


def test_each_metric_exists() -> None:
    """A renamed metric would leave a panel empty and an alert silent."""
    used = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert used - known() == set()
    assert len(used) > 30


def test_each_metric_is_shown() -> None:
    """The dashboard has every metric of ours, but for two that say nothing in a picture."""
    used = {name for expression in expressions() for name in METRIC.findall(expression)}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    rest = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known()} - shown
    assert rest == {"webmcp_gateway_process_virtual_memory_bytes"}


def test_the_alerts_have_the_form_of_prometheus() -> None:
    """Names, expressions, severities, and what to do."""
    for rule in rules():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"Gateway[A-Za-z]+", rule["alert"])
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "remedy"}
        assert DURATION.fullmatch(rule.get("for", "1m"))
    assert len({rule["alert"] for rule in rules()}) == len(rules())


def test_the_dashboard_has_the_form_of_grafana() -> None:
    """Panels have ids of their own, and none covers another one."""
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)
