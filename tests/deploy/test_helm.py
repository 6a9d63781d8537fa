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
CLUSTER: dict[str, Any] = {"replicas": 3, "cluster": {"enabled": True}}
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
    "three nodes": CLUSTER,
    "one node, without Redis": {"cluster": {"enabled": True, "redis": False}},
    "nodes that are added and removed": {
        "cluster": {"enabled": True, "certificate": {"issuer": "nodes", "kind": "ClusterIssuer"}},
        "autoscaling": {"enabled": True},
        "resources": {"requests": {"cpu": "600m"}},
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
        if manifest["kind"] == "Certificate":  # cert-manager's, which Kubernetes does not know
            continue
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


def by_name(values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """The manifests by kind and name."""
    return {(part["kind"], part["metadata"]["name"]): part for part in render(CHART, values)}


def test_nodes_find_each_other() -> None:
    """Each pod has a name in the headless service, where the policy lets the others reach its listener."""
    parts = by_name(VARIANTS["nodes that are added and removed"])
    nodes, pods = parts["Service", "demo-nodes"]["spec"], parts["StatefulSet", "demo"]["spec"]
    assert (nodes["clusterIP"], nodes["publishNotReadyAddresses"]) == ("None", True)
    assert pods["serviceName"] == "demo-nodes"
    assert nodes["selector"] == pods["selector"]["matchLabels"]
    (container,) = pods["template"]["spec"]["containers"]
    (port,) = [port for port in container["ports"] if port["name"] == "nodes"]
    written = yaml.safe_load(parts["ConfigMap", "demo"]["data"]["gateway.yaml"])["cluster"]
    assert written["listen"] == f"0.0.0.0:{port['containerPort']}"
    assert written["address"] == f"{{name}}.demo-nodes.default.svc:{port['containerPort']}"
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "nodes"]
    assert {str(Path(file).parent) for file in written["tls"].values()} == {mount["mountPath"]}
    certificate = parts["Certificate", "webmcp-gateway-nodes"]["spec"]
    (volume,) = [volume for volume in pods["template"]["spec"]["volumes"] if volume["name"] == "nodes"]
    assert volume["secret"]["secretName"] == certificate["secretName"]
    assert certificate["dnsNames"] == [written["address"].partition(":")[0].replace("{name}", "*")]
    policy = parts["NetworkPolicy", "demo"]["spec"]
    selector = [{"podSelector": {"matchLabels": nodes["selector"]}}]
    assert {"from": selector, "ports": [{"port": "nodes"}]} in policy["ingress"]
    assert {"to": selector, "ports": [{"port": port["containerPort"]}]} in policy["egress"]
    assert "replicas" not in pods  # the autoscaler's
    scaled = parts["HorizontalPodAutoscaler", "demo"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == "demo"
    assert parts["PodDisruptionBudget", "demo"]["spec"]["selector"]["matchLabels"] == nodes["selector"]


def test_one_replica_needs_none_of_it() -> None:
    """As shipped there is no port of nodes, no budget, and no autoscaler; one node needs no Redis."""
    shipped = by_name({})
    assert not {"PodDisruptionBudget", "HorizontalPodAutoscaler"}.intersection(kind for kind, _ in shipped)
    assert [port["name"] for port in shipped["Service", "demo-nodes"]["spec"]["ports"]] == ["admin"]
    parts = by_name(VARIANTS["one node, without Redis"])
    assert parts["StatefulSet", "demo"]["spec"]["replicas"] == 1
    assert ("PodDisruptionBudget", "demo") not in parts
    assert "redis" not in yaml.safe_load(parts["ConfigMap", "demo"]["data"]["gateway.yaml"])["stores"]


def test_an_installed_replica_becomes_several_nodes() -> None:
    """Kubernetes refuses an update that changes more of a StatefulSet than what it lets be changed."""
    mutable = {"replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy", "minReadySeconds"}
    variants: tuple[dict[str, Any], ...] = (
        {},
        VARIANTS["one node, without Redis"],
        CLUSTER,
        VARIANTS["nodes that are added and removed"],
    )
    fixed = [
        {key: value for key, value in by_name(values)["StatefulSet", "demo"]["spec"].items() if key not in mutable}
        for values in variants
    ]
    assert fixed == [fixed[0]] * len(variants)
    assert fixed[0]["serviceName"] == "demo-nodes"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"replicas": 2}, "set cluster.enabled"),
        ({"autoscaling": {"enabled": True}}, "set cluster.enabled"),
        ({**CLUSTER, "persistence": {"existingClaim": "mine"}}, "a volume of its own"),
        ({**CLUSTER, "config": {"stores": {"redis": None}}}, "remove them"),
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, Any], word: str) -> None:
    """Helm ends with the line to change."""
    with pytest.raises(TemplateError, match=word):
        render(CHART, values)


def test_pod_and_container_agree() -> None:
    """The pod is drained before it is killed, its probes and policies name real ports, and nothing is writable."""
    parts = by_name({"drain": {"announceSeconds": 7, "timeoutSeconds": 100}})
    by_kind = {kind: part for (kind, name), part in parts.items() if name == "demo"}
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
