"""Kubernetes and Ray files against their published schemas."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from groktime.service.sweep.cluster import gpu_share

VERSION = "1.31"
KUBERAY = Path(__file__).resolve().parents[3] / "deploy/kuberay"
KUSTOMIZATIONS = sorted(
    str(path.parent.relative_to(KUBERAY)) for path in KUBERAY.rglob("kustomization.yaml")
)

# Fields that KubeRay's ray.io/v1 types have and that are used here, by the path to them: no
# package carries its resource definitions. Pod templates inside are held against the schema of
# Kubernetes itself.
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "RayCluster": {
        "rayVersion": str,
        "authOptions": dict,
        "authOptions.mode": str,
        "enableInTreeAutoscaling": bool,
        "autoscalerOptions": dict,
        "autoscalerOptions.idleTimeoutSeconds": int,
        "autoscalerOptions.upscalingMode": str,
        "autoscalerOptions.resources": dict,
        "autoscalerOptions.securityContext": dict,
        "headGroupSpec": dict,
        "headGroupSpec.serviceType": str,
        "headGroupSpec.rayStartParams": dict,
        "headGroupSpec.template": dict,
        "workerGroupSpecs": list,
        "workerGroupSpecs.groupName": str,
        "workerGroupSpecs.replicas": int,
        "workerGroupSpecs.minReplicas": int,
        "workerGroupSpecs.maxReplicas": int,
        "workerGroupSpecs.rayStartParams": dict,
        "workerGroupSpecs.template": dict,
    },
    "RayJob": {
        "entrypoint": str,
        "submissionMode": str,
        "clusterSelector": dict,
        "activeDeadlineSeconds": int,
    },
}
# Maps of strings or parts with a schema of Kubernetes' own: not looked into here.
OPAQUE = ("rayStartParams", "template", "resources", "securityContext", "clusterSelector")
CHOICES = {
    "authOptions.mode": {"disabled", "token"},
    "autoscalerOptions.upscalingMode": {"Default", "Aggressive", "Conservative"},
    "headGroupSpec.serviceType": {"ClusterIP", "NodePort", "LoadBalancer"},
    "submissionMode": {"K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode"},
}


def check_fields(kind: str, part: dict[str, Any], path: str = "") -> None:
    """Every field is one of KubeRay's, of its type and one of its values."""
    for name, value in part.items():
        where = f"{path}{name}"
        assert where in FIELDS[kind], f"{kind} has no field {where}"
        assert isinstance(value, FIELDS[kind][where]), f"{kind}.{where} = {value!r}"
        assert where not in CHOICES or value in CHOICES[where], f"{kind}.{where} = {value!r}"
        if name in OPAQUE:
            continue
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                check_fields(kind, inner, f"{where}.")


def check(resource: dict[str, Any]) -> None:
    """Hold the resource against its schema; Ray's own by their fields and pods."""
    if resource["kind"] == "RayCluster":
        spec = resource["spec"]
        check_fields("RayCluster", spec)
        for group in spec["workerGroupSpecs"]:
            assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
            assert all(isinstance(value, str) for value in group["rayStartParams"].values())
            pod = {"apiVersion": "v1", "kind": "Pod", **group["template"]}
            pod["metadata"] = {"name": "pod", **pod.get("metadata", {})}
            kubernetes_validate.validate(pod, VERSION, strict=True)
    elif resource["kind"] == "RayJob":
        check_fields("RayJob", resource["spec"])
    else:
        kubernetes_validate.validate(resource, VERSION, strict=True)


def pods(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Specs of all pods that the resources lead to."""
    found = []
    for resource in resources:
        if resource["kind"] in ("Deployment", "Job"):
            found.append(resource["spec"]["template"]["spec"])
        elif resource["kind"] == "RayCluster":
            spec = resource["spec"]
            for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
                found.append(group["template"]["spec"])
    return found


def built(folder: Path) -> list[dict[str, Any]]:
    """What `kubectl apply -k` would send."""
    program = shutil.which("kubectl") or shutil.which("kustomize")
    if program is None:
        pytest.skip("neither kubectl nor kustomize is installed here")
    word = "kustomize" if program.endswith("kubectl") else "build"
    return list(yaml.safe_load_all(subprocess.check_output([program, word, folder], text=True)))


def test_every_resource_fits_its_schema(kubernetes: list[dict[str, Any]]) -> None:
    kinds = {resource["kind"] for resource in kubernetes}
    assert kinds >= {"RayCluster", "RayJob", "Deployment", "Service", "Ingress", "Job"}
    assert "NetworkPolicy" in kinds
    for resource in kubernetes:
        check(resource)


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_every_kustomization_builds_resources_that_fit_their_schemas(folder: str) -> None:
    resources = built(KUBERAY / folder)
    assert resources
    for resource in resources:
        check(resource)
        if resource["kind"] != "Namespace" and folder != "base":
            assert resource["metadata"]["namespace"] == "groktime"


def test_all_kustomizations_are_known() -> None:
    assert KUSTOMIZATIONS == ["base", "job", "overlays/dev", "overlays/gpu"]


@pytest.mark.parametrize(
    ("kind", "spec", "problem"),
    [
        ("RayJob", {"entryPoint": "groktime"}, "no field entryPoint"),
        ("RayJob", {"submissionMode": "http"}, "submissionMode"),
        ("RayCluster", {"authOptions": {"mode": "tokens"}}, "authOptions.mode"),
        ("RayCluster", {"workerGroupSpecs": [{"replicas": "1"}]}, "workerGroupSpecs.replicas"),
        ("RayCluster", {"headGroupSpec": {"replicas": 1}}, "no field headGroupSpec.replicas"),
    ],
)
def test_a_wrong_field_is_found(kind: str, spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_fields(kind, spec)


@pytest.mark.parametrize("overlay", ["overlays/dev", "overlays/gpu"])
def test_the_job_is_accepted_on_the_cluster_of_every_overlay(overlay: str) -> None:
    (job,) = built(KUBERAY / "job")
    (cluster,) = (r for r in built(KUBERAY / overlay) if r["kind"] == "RayCluster")
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}
    groups = cluster["spec"]["workerGroupSpecs"]
    (head,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    device = {e["name"]: e.get("value") for e in head["env"]}.get("GROKTIME_DEVICE", "auto")
    started = {"CPU": 0.0, "GPU": 0.0}
    for group in groups:
        for resource, option in (("CPU", "num-cpus"), ("GPU", "num-gpus")):
            count = group["minReplicas"] * float(group["rayStartParams"].get(option, 0))
            started[resource] += count
    assert job["spec"]["entrypoint"].split() == ["groktime", "sweep", "central"]
    share = gpu_share(None, device, started)
    assert (share > 0) == (overlay == "overlays/gpu")


def test_every_pod_is_restricted(kubernetes: list[dict[str, Any]]) -> None:
    specs = pods(kubernetes)
    assert len(specs) == 4
    for spec in specs:
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


def test_probes_ask_ports_that_the_container_declares(kubernetes: list[dict[str, Any]]) -> None:
    for spec in pods(kubernetes):
        for container in spec["containers"]:
            ports = {str(port["containerPort"]) for port in container.get("ports", ())}
            for probe in ("readinessProbe", "livenessProbe"):
                command = container.get(probe, {}).get("exec", {}).get("command")
                if command:
                    assert command[0] == "healthcheck"
                    assert command[1].split(":")[2].split("/")[0] in ports


def test_only_the_api_can_be_reached_from_other_namespaces_users(
    kubernetes: list[dict[str, Any]],
) -> None:
    (ingress,) = (r for r in kubernetes if r["kind"] == "Ingress")
    (service,) = (r for r in kubernetes if r["kind"] == "Service")
    (deployment,) = (r for r in kubernetes if r["kind"] == "Deployment")
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert ingress["spec"]["tls"]


def test_every_pod_is_under_a_policy_that_denies_by_default(
    kubernetes: list[dict[str, Any]],
) -> None:
    policies = {
        r["metadata"]["name"]: r["spec"] for r in kubernetes if r["kind"] == "NetworkPolicy"
    }
    deny = policies["groktime-deny"]
    assert "ingress" not in deny
    assert deny["podSelector"]["matchLabels"] == {"app.kubernetes.io/part-of": "groktime"}
    (cluster,) = (r for r in kubernetes if r["kind"] == "RayCluster")
    # Kustomize labels the templates it knows, but not those inside Ray's resources.
    for group in [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]:
        labels = group["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "groktime"


def test_the_gpu_overlay_asks_for_gpus_on_workers_only(root: Path) -> None:
    resources = built(root / "deploy/kuberay/overlays/gpu")
    (cluster,) = (r["spec"] for r in resources if r["kind"] == "RayCluster")
    (worker,) = cluster["workerGroupSpecs"]
    container = worker["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["image"] == "groktime:cuda"
    # A sweep refuses GPUs that are not there yet, and its driver on the head names the device.
    assert worker["minReplicas"] == 1
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    assert {"name": "GROKTIME_DEVICE", "value": "cuda"} in head["env"]
    assert "nvidia.com/gpu" not in str(cluster["headGroupSpec"])


@pytest.mark.parametrize("name", ["onpremise", "aws"])
def test_rays_cluster_launcher_accepts_the_file(root: Path, name: str) -> None:
    config = yaml.safe_load((root / f"deploy/ray/{name}.yaml").read_text())
    validate_config(prepare_config(config))


@pytest.mark.parametrize("name", ["onpremise", "aws"])
def test_launched_clusters_need_a_token_and_bind_their_dashboard_to_the_loopback(
    root: Path, name: str
) -> None:
    config = yaml.safe_load((root / f"deploy/ray/{name}.yaml").read_text())
    assert "--env=RAY_AUTH_MODE=token" in config["docker"]["run_options"]
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][1]
