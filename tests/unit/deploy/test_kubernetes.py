"""Kubernetes and Ray files against their published schemas."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from groktime.service.spec import RunSpec
from groktime.service.suites import load_suite
from groktime.service.sweep.cluster import CPU_STACK_BYTES, bundles_at_once, gpu_share
from groktime.service.sweep.cost import CostModel
from groktime.service.sweep.plan import Pending, plan
from groktime.workers.checkpoints import checkpoint_bytes
from groktime.workers.devices import model_bytes

VERSION = "1.31"
STACKS_OF_A_GPU = 24e9  # bytes of a GPU of 40 GB that stacks may take together
# A worker of the native engine, what it takes for each parameter of the run that it trains and
# checkpoints (measured at widths 500 and 1,000), and a node's own processes.
WORKER_BYTES, PARAMETER_BYTES, RAY_BYTES = 260e6, 83, 1e9
# With CUDA nobody has measured it: a process that imports torch, and copies of a stack's states.
CUDA_WORKER_BYTES, STATE_BYTES = 2.5e9, 12
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


@pytest.mark.parametrize(
    ("overlay", "option", "setting"),
    [
        ("base", "num-cpus", "GROKTIME_MOST_CPUS"),
        ("overlays/dev", "num-cpus", "GROKTIME_MOST_CPUS"),
        ("overlays/gpu", "num-cpus", "GROKTIME_MOST_CPUS"),
        ("overlays/gpu", "num-gpus", "GROKTIME_MOST_GPUS"),
    ],
)
def test_sweeps_are_told_how_large_the_autoscaler_makes_the_cluster(
    overlay: str, option: str, setting: str
) -> None:
    resources = built(KUBERAY / overlay)
    (cluster,) = (r["spec"] for r in resources if r["kind"] == "RayCluster")
    (told,) = (r["data"] for r in resources if r["kind"] == "ConfigMap")
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    told |= {e["name"]: e["value"] for e in head["env"] if "value" in e}
    groups = cluster["workerGroupSpecs"]
    most = sum(g["maxReplicas"] * int(g["rayStartParams"].get(option, 0)) for g in groups)
    assert int(told[setting]) == most > 0


@dataclass(frozen=True)
class Planned:
    """What trains at once on an overlay's cluster when it is as large as it may become."""

    workers: dict[str, Any]  # the group of them
    volume: int  # bytes
    share: float  # of a GPU for each bundle
    slots: int  # of one worker
    stacks: list[list[RunSpec]]  # the largest of each bundle, by its parameters, falling


@pytest.fixture(params=["base", "overlays/dev", "overlays/gpu"])
def central(request: pytest.FixtureRequest) -> Planned:
    """The suite that the job trains."""
    resources = built(KUBERAY / request.param)
    (claim,) = (r for r in resources if r["kind"] == "PersistentVolumeClaim")
    (cluster,) = (r["spec"] for r in resources if r["kind"] == "RayCluster")
    (group,) = cluster["workerGroupSpecs"]
    started = group["rayStartParams"]
    node = {"CPU": float(started["num-cpus"]), "GPU": float(started.get("num-gpus", 0))}
    share = gpu_share(None, "auto", node)
    slots = bundles_at_once(share, None, node)
    there = int(share * STACKS_OF_A_GPU) if share else CPU_STACK_BYTES

    def limit(spec: RunSpec) -> int:
        return there // model_bytes(spec, "cuda" if share else "cpu")

    runs = [Pending(number, spec) for number, spec in enumerate(load_suite("central").runs())]
    bundles = plan(
        runs,
        CostModel(1e12),
        workers=slots * group["maxReplicas"],
        stack_limit=limit,
        on_gpu=share > 0,
    )
    stacks = [
        max(([run.spec for run in stack.runs] for stack in bundle.stacks), key=parameters)
        for bundle in bundles
    ]
    size = claim["spec"]["resources"]["requests"]["storage"]
    return Planned(group, gibibytes(size), share, slots, sorted(stacks, key=parameters)[::-1])


def parameters(stack: list[RunSpec]) -> int:
    return sum(spec.params for spec in stack)


def gibibytes(size: str) -> int:
    return int(size.removesuffix("Gi")) * 2**30


def test_the_volume_holds_the_checkpoints_of_what_trains_at_once(central: Planned) -> None:
    """A run has a third file while it replaces one."""
    largest = central.stacks[: central.slots * central.workers["maxReplicas"]]
    kept = sum(checkpoint_bytes(spec) for stack in largest for spec in stack)
    assert kept * 3 / 2 < central.volume


def test_a_worker_has_the_memory_for_the_largest_runs_that_train_at_once(central: Planned) -> None:
    """The longest bundles begin first, and these are the widest."""
    (container,) = central.workers["template"]["spec"]["containers"]
    largest = central.stacks[: central.slots]
    if central.share:
        taken = sum(CUDA_WORKER_BYTES + STATE_BYTES * parameters(stack) for stack in largest)
    else:
        widest = [max(spec.params for spec in stack) for stack in largest]
        taken = sum(WORKER_BYTES + PARAMETER_BYTES * params for params in widest)
    assert taken + RAY_BYTES < gibibytes(container["resources"]["limits"]["memory"])


@pytest.mark.parametrize(
    ("file", "cpus", "gigabytes"),
    [
        ("deploy/slurm/sweep.sbatch", r"--cpus-per-task=(\d+)", r"--mem=(\d+)G"),
        ("docker-compose.yml", r"\$\{WORKER_CPUS:-(\d+)\}", r"\$\{WORKER_MEMORY:-(\d+)g\}"),
    ],
)
def test_other_nodes_have_the_memory_for_the_widest_runs(
    root: Path, file: str, cpus: str, gigabytes: str
) -> None:
    text = (root / file).read_text()
    workers, memory = re.search(cpus, text), re.search(gigabytes, text)
    assert workers is not None
    assert memory is not None
    widest = max(run.params for run in load_suite("central").runs())
    taken = int(workers[1]) * (WORKER_BYTES + PARAMETER_BYTES * widest)
    assert taken + RAY_BYTES < int(memory[1]) * 2**30


def test_sweeps_are_told_how_large_the_launcher_makes_the_cluster(root: Path) -> None:
    config = yaml.safe_load((root / "deploy/ray/aws.yaml").read_text())
    for setting, resource in (("GROKTIME_MOST_CPUS", "cpu"), ("GROKTIME_MOST_GPUS", "gpu")):
        kind = config["available_node_types"][resource]
        most = kind["max_workers"] * kind["resources"][resource.upper()]
        assert f"--env={setting}={most}" in config["docker"]["run_options"]


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
