"""The files of `deploy/` for operators: their form, and that each metric which they use exists."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from gateway.telemetry import Metrics
from tests.deploy.proxies import DEPLOY

METRIC = re.compile(r"webmcp_gateway_\w+")
DURATION = re.compile(r"\d+[smh]")


def metric_names() -> set[str]:
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
    assert used - metric_names() == set()
    assert len(used) > 30


def test_each_metric_is_shown() -> None:
    """The dashboard has every metric of ours, but for two that say nothing in a picture."""
    used = {name for expression in expressions() for name in METRIC.findall(expression)}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    rest = {re.sub(r"_(bucket|sum|count)$", "", name) for name in metric_names()} - shown
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


FIRING: Final[dict[str, tuple[dict[str, str], dict[str, str], str]]] = {
    "GatewayDown": ({'up{job="webmcp-gateway"}': "0x9"}, {"job": "webmcp-gateway"}, "does not answer"),
    "GatewayRestarts": ({"process_start_time_seconds": "1 2 3 4x6"}, {}, "started more than twice"),
    "GatewayLoginsFail": ({'authentications_total{outcome="failed"}': "0+6x9"}, {}, "cannot be identified"),
    "GatewayRecordFails": (
        {'journal_failures_total{consequence="refused"}': "0x7 1x2"}, {"consequence": "refused"}, "written (refused)",
    ),
    "GatewaySecretMasked": ({'secrets_masked_total{credential="crm"}': "0x7 1x2"}, {"credential": "crm"}, "of crm"),
    "GatewaySinkBehind": ({'sink_lag_bytes{sink="otlp"}': "20971520x9"}, {"sink": "otlp"}, "The sink otlp lacks 20MiB"),
    "GatewayConfigurationBroken": ({'configuration_problems{kind="broken"}': "1x9"}, {"kind": "broken"}, "not taken"),
    "GatewayCircuitOpen": (
        {'circuit_open{app="cart",backend="shop"}': "1x9"}, {"app": "cart", "backend": "shop"}, "shop of cart fails",
    ),
    "GatewayUpstreamDown": ({'upstream_up{upstream="crm"}': "0x20"}, {"upstream": "crm"}, "to the upstream crm"),
    "GatewayStoreDown": ({'store_up{store="redis"}': "0x9"}, {"store": "redis"}, "shared store redis cannot"),
    "GatewayBackendsFail": (
        {'refusals_total{app="cart",door="site",reason="backend-timeout"}': "0+60x20"},
        {"app": "cart", "reason": "backend-timeout"}, "of cart end with backend-timeout",
    ),
    "GatewayCallersRefused": (
        {'callers_refused_total{door="mcp",reason="unidentified"}': "0+600x20"},
        {"reason": "unidentified"}, "refused (unidentified)",
    ),
    "GatewayBoundsExceeded": ({'bounds_exceeded_total{bound="views"}': "0+120x20"}, {"bound": "views"}, '"views"'),
    "GatewayFilesRunOut": ({"process_open_fds": "800x9", "process_max_fds": "1000x9"}, {}, "70 %"),
    "GatewaySlow": (
        {'step_seconds_bucket{kind="http",step="decide",le="0.1"}': "0+1x20",
         'step_seconds_bucket{kind="http",step="decide",le="0.25"}': "0+100x20",
         'step_seconds_bucket{kind="http",step="decide",le="+Inf"}': "0+100x20"}, {}, "longer than 100 ms",
    ),
    "GatewayNodesDiffer": ({'cluster_nodes{state="differing"}': "1x20"}, {}, "differ in version or configuration"),
    "GatewayNodesUnreachable": (
        {'cluster_forward_seconds_count{outcome="unreachable"}': "0+1x20"}, {}, "does not reach another one",
    ),
}  # fmt: skip
"""What makes each alert fire, a value a minute; its labels; and a part of what it says."""
QUIET: Final = {
    'up{job="webmcp-gateway"}': "1x20",
    "process_start_time_seconds": "1x5 2x15",
    'authentications_total{outcome="refused"}': "0+6x20",
    'journal_failures_total{consequence="refused"}': "3x20",
    'secrets_masked_total{credential="crm"}': "3x20",
    'sink_lag_bytes{sink="otlp"}': "20971520x3 0x17",
    'configuration_problems{kind="broken"}': "0x20",
    'upstream_up{upstream="crm"}': "1x5 0x8 1x7",
    'store_up{store="redis"}': "1x5 0 1x14",
    'refusals_total{app="cart",door="site",reason="policy-denied"}': "0+600x20",
    'callers_refused_total{door="mcp",reason="unidentified"}': "0+60x20",
    'cluster_nodes{state="differing"}': "0x2 1x10 0x8",
    'cluster_forward_seconds_count{outcome="unreachable"}': "3x20",
    "process_open_fds": "500x20",
    "process_max_fds": "1000x20",
    'step_seconds_bucket{kind="http",step="decide",le="0.1"}': "0+100x20",
    'step_seconds_bucket{kind="http",step="decide",le="+Inf"}': "0+100x20",
}
"""A gateway whose operators may sleep."""


def test_prometheus_fires_each_alert(tmp_path: Path) -> None:
    """promtool checks the rules, and evaluates them over series of a gateway with each fault, and of one without."""
    assert [rule["alert"] for rule in rules()] == list(FIRING)
    found = {rule["alert"]: rule for rule in rules()}
    tests: list[dict[str, Any]] = [evaluation(QUIET, {name: [] for name in FIRING}, 20)]
    for name, (series, labels, said) in FIRING.items():
        summary = found[name]["annotations"]["summary"]
        for label, value in labels.items():
            summary = summary.replace("{{ $labels." + label + " }}", value)
        summary = summary.replace("{{ $value | humanize1024 }}", "20Mi")
        assert said in summary
        told = {"exp_labels": {**labels, "severity": found[name]["labels"]["severity"]}}
        told["exp_annotations"] = {**found[name]["annotations"], "summary": summary}
        tests.append(evaluation(series, {name: [told]}, 18 if "x20" in str(series) else 8))
    case = {"rule_files": [str(DEPLOY / "alerts.yaml")], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(case), "utf-8")
    for command in (["check", "rules", str(DEPLOY / "alerts.yaml")], ["test", "rules", str(tmp_path / "case.yaml")]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def evaluation(series: dict[str, str], alerts: dict[str, list[Any]], minute: int) -> dict[str, Any]:
    """A test for promtool: which alerts fire, with their labels and annotations, at a minute of these series."""
    named = {name if name.startswith("up{") else f"webmcp_gateway_{name}": values for name, values in series.items()}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in named.items()],
        "alert_rule_test": [
            {"alertname": name, "eval_time": f"{minute}m", "exp_alerts": fires} for name, fires in alerts.items()
        ],
    }


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
