"""The chart of deploy/helm, rendered and checked against the schemas of Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gateway.config import load_config
from tests.deploy.helm_template import TemplateError, render
from tests.deploy.proxies import DEPLOY

CHART = DEPLOY / "helm"
VERSIONS = ("1.27", "1.33")
VARIANTS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "a claim and a Secret of one's own": {
        "persistence": {"existingClaim": "mine"},
        "existingSecret": "mine",
        "image": {"tag": "1.2.3", "pullSecrets": [{"name": "registry"}]},
    },
    "dedicated origins": {
        "hosts": {"dedicated": "{id}.example.org"},
        "config": {"apps": {"hello": {"source": "hello.html", "policy": "hello-policy.yaml", "sandbox": "dedicated"}}},
    },
    "everything else": {
        "secrets": {"LOGIN_SECRET": 'a "quoted": value\\', "DATABASE_URL": "postgresql://gateway@db/gateway"},
        "persistence": {"storageClass": "fast"},
        "ingress": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "podAnnotations": {"example.com/x": "true"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
}


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(version: str, variant: str) -> None:
    """By the strict schema of that Kubernetes version: unknown keys are errors, too."""
    manifests = render(CHART, VARIANTS[variant])
    assert len(manifests) >= 4
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("variant", ["as shipped", "dedicated origins"])
def test_its_gateway_starts(tmp_path: Path, variant: str) -> None:
    """The ConfigMap's files, in a folder of their own, are a valid configuration."""
    (files,) = (part["data"] for part in render(CHART, VARIANTS[variant]) if part["kind"] == "ConfigMap")
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace("/var/lib/webmcp-gateway", str(tmp_path / "state")), "utf-8")
    config = load_config(tmp_path / "gateway.yaml", {"LOGIN_SECRET": "x"})
    assert list(config.apps) == ["hello"]
    assert config.server.origins.app("hello") == "https://hello.example.net"
    dedicated = config.server.origins.frame("0a") == "https://0a.example.org"
    assert config.apps["hello"].dedicated == dedicated == (variant == "dedicated origins")


def test_pod_and_container_agree() -> None:
    """The pod is drained before it is killed, its probes and policies name real ports, and nothing is writable."""
    by_kind = {part["kind"]: part for part in render(CHART, {"drain": {"announceSeconds": 7, "timeoutSeconds": 100}})}
    pod = by_kind["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] > 107
    ports = {port["name"] for port in container["ports"]}
    probes = (container[f"{name}Probe"]["httpGet"]["port"] for name in ("startup", "readiness", "liveness"))
    assert {*probes, *(port["targetPort"] for port in by_kind["Service"]["spec"]["ports"])} == ports
    assert {part["port"] for rule in by_kind["NetworkPolicy"]["spec"]["ingress"] for part in rule["ports"]} == ports
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert by_kind["StatefulSet"]["spec"]["selector"]["matchLabels"] == by_kind["Service"]["spec"]["selector"]
    written = yaml.safe_load(by_kind["ConfigMap"]["data"]["gateway.yaml"])
    assert written["server"]["drain"] == {"announce": "7s", "timeout": "100s"}


def test_each_app_has_a_host() -> None:
    """The Ingress lists the sites of the gateway and of each app, in rules and certificate; nginx repeats nothing."""
    values = {"config": {"apps": {"second": {"source": "second.html", "policy": "second.yaml"}}}}
    (whole,) = (part for part in render(CHART, values) if part["kind"] == "Ingress")
    ingress, annotations = whole["spec"], whole["metadata"]["annotations"]
    hosts = ["mcp.example.com", "console.example.com", "sandbox.example.net", "hello.example.net", "second.example.net"]
    assert [rule["host"] for rule in ingress["rules"]] == hosts
    assert ingress["tls"][0]["hosts"] == hosts
    assert annotations["nginx.ingress.kubernetes.io/proxy-next-upstream"] == "off"


def test_dedicated_origins_have_one_host() -> None:
    """A wildcard, in rules and certificate: each app and person has a name of its own below it."""
    (whole,) = (part for part in render(CHART, VARIANTS["dedicated origins"]) if part["kind"] == "Ingress")
    assert whole["spec"]["rules"][-1]["host"] == whole["spec"]["tls"][0]["hosts"][-1] == "*.example.org"


@pytest.mark.parametrize("text", ["{{ .Values.nothing }}", "{{ unknown .Values }}", "{{ if .Values }}", "{{ $x }}"])
def test_a_mistake_in_a_template_is_found(tmp_path: Path, text: str) -> None:
    """The renderer raises instead of writing something."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "values.yaml").write_text("a: 1", "utf-8")
    (tmp_path / "Chart.yaml").write_text("name: x", "utf-8")
    (tmp_path / "templates" / "x.yaml").write_text(text, "utf-8")
    with pytest.raises(TemplateError):
        render(tmp_path)
