"""docker-compose.yml keeps to the published schema and to what it promises about safety."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from fixtures.compose_file import (
    UnsetVariable,
    container_ports,
    in_start_order,
    inconsistencies,
    interpolate,
    load,
    merged,
    mount_points,
    variables_of,
    without_profile,
)

FILES = ("docker-compose.yml", "deploy/compose.gpu.yml", "deploy/compose.closed.yml")
FORBIDDEN_USERS = ("root", "0", "0:0")


@pytest.mark.parametrize("name", FILES)
def test_a_compose_file_fits_the_compose_specification(root: Path, name: str) -> None:
    package = resources.files("check_jsonschema.builtin_schemas.vendor")
    schema = json.loads((package / "compose-spec.json").read_text())
    jsonschema.validate(yaml.safe_load((root / name).read_text()), schema)


# What `docker compose` is given with -f.
TOGETHER = [FILES[:1], FILES[:2], (FILES[0], FILES[2]), FILES]


@pytest.mark.parametrize("names", TOGETHER, ids=lambda names: "+".join(names))
def test_files_given_together_do_not_contradict_each_other(
    root: Path, names: tuple[str, ...]
) -> None:
    project: dict[str, Any] = {}
    for name in names:
        project = merged(project, load(root / name, {"SECRETS_DIR": "/secrets"}))
    assert inconsistencies(project) == []


@pytest.mark.parametrize("names", TOGETHER, ids=lambda names: "+".join(names))
def test_compose_itself_accepts_the_files(root: Path, names: tuple[str, ...]) -> None:
    command = next(
        (
            words
            for words in (["docker-compose"], ["docker", "compose"])
            if shutil.which(words[0])
            and " version "
            in subprocess.run(
                [*words, "version"], capture_output=True, text=True, check=False
            ).stdout
        ),
        None,
    )
    if command is None:
        pytest.skip("Docker Compose is not installed here; its rules are tested above")
    files = [word for name in names for word in ("-f", str(root / name))]
    done = subprocess.run(
        [*command, *files, "--profile", "observability", "config", "--quiet"],
        env={**os.environ, "SECRETS_DIR": "/secrets"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("service", "problem"),
    [
        ({"image": None}, "neither an image nor a build"),
        ({"pids_limit": 100}, "pids_limit = 100, but deploy.resources.limits.pids = 4096"),
        ({"cpus": 1}, "cpus = 1, but deploy.resources.limits.cpus = 2"),
        ({"mem_limit": "3g"}, "mem_limit = 3g, but deploy.resources.limits.memory = 8g"),
        ({"scale": 3}, "scale = 3, but deploy.replicas = 1"),
        ({"scale": 1, "network_mode": "host", "networks": ["default"]}, "network_mode"),
        ({"healthcheck": {"test": ["curl", "localhost"]}}, "healthcheck.test starts with curl"),
        ({"secrets": ["nowhere"]}, "secrets: nowhere is not defined"),
        ({"volumes": ["nowhere:/data"]}, "volumes: nowhere is not defined"),
        ({"tmpfs": ["/tmp", "/tmp:size=1g"]}, "mounts /tmp twice"),
        ({"depends_on": {"nobody": {}}}, "depends on nobody"),
    ],
)
def test_a_contradiction_is_found(
    compose: dict[str, Any], service: dict[str, Any], problem: str
) -> None:
    project = copy.deepcopy(compose)
    worker = project["services"]["ray-worker"] | service
    if "image" in service:
        del worker["image"], worker["build"]
    project["services"]["ray-worker"] = worker
    assert any(problem in found for found in inconsistencies(project))


def test_equal_limits_may_be_written_in_different_units(compose: dict[str, Any]) -> None:
    project = copy.deepcopy(compose)
    project["services"]["ray-worker"]["mem_limit"] = "8192m"
    assert inconsistencies(project) == []


def test_compose_refuses_to_start_without_secrets(root: Path) -> None:
    with pytest.raises(UnsetVariable, match=r"SECRETS_DIR: run deploy/make-secrets"):
        load(root / "docker-compose.yml", {})


def test_no_password_or_token_stands_in_the_file(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|URL", key) and "ADDRESS" not in key:
                assert str(value).startswith("/run/secrets/"), (name, key)


def test_every_published_port_is_on_the_loopback_unless_told_otherwise(
    root: Path, compose: dict[str, Any]
) -> None:
    elsewhere = load(root / "docker-compose.yml", {"SECRETS_DIR": "/s", "BIND_ADDRESS": "10.0.0.1"})
    published = 0
    for name, service in compose["services"].items():
        for here, there in zip(
            service.get("ports", ()), elsewhere["services"][name].get("ports", ()), strict=True
        ):
            assert here.startswith("127.0.0.1:")
            assert there.startswith("10.0.0.1:")
            published += 1
    assert published == 4


def test_the_database_is_not_published(compose: dict[str, Any]) -> None:
    assert "ports" not in compose["services"]["postgres"]


def test_every_container_is_hardened(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["user"] not in FORBIDDEN_USERS, name
        assert "privileged" not in service, name


def test_every_lasting_service_has_a_health_check(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        check = service["healthcheck"]
        assert check.get("disable") if name == "migrate" else check["test"][0] == "CMD", name


def test_postgres_is_healthy_only_when_the_others_can_reach_it(compose: dict[str, Any]) -> None:
    assert "--host=127.0.0.1" in compose["services"]["postgres"]["healthcheck"]["test"]


def test_every_image_is_pinned(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        _, tag = service["image"].rsplit(":", 1)
        assert tag != "latest"


def test_a_service_mounts_only_secrets_it_reads(root: Path, compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name == "postgres":
            continue  # reads a folder of them in roles.sql
        text = str(service.get("environment", {}))
        if name == "prometheus":
            text = (root / "deploy/prometheus/prometheus.yml").read_text()
        read = set(re.findall(r"/run/secrets/(\w+)", text))
        assert set(service.get("secrets", ())) == read, name


def test_secrets_are_the_ones_that_make_secrets_makes(root: Path, compose: dict[str, Any]) -> None:
    script = (root / "deploy/make-secrets").read_text()
    for name, secret in compose["secrets"].items():
        assert secret == {"file": f"/secrets/{name}"}
        assert re.search(rf"\b{name}\b", script), name


def test_volumes_and_mounted_files_exist(root: Path, compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for source, _ in mount_points(service):
            if source is not None and source.startswith("./"):
                assert (root / source).exists(), source
            elif source is not None:
                assert source in compose["volumes"]


def test_the_training_home_allows_compiled_code(compose: dict[str, Any]) -> None:
    # Docker mounts a tmpfs without the right to execute, and the native engine is compiled there.
    for name in ("ray-head", "ray-worker"):
        (home,) = (m for m in compose["services"][name]["tmpfs"] if m.startswith("/var/lib"))
        assert "exec" in home.partition(":")[2].split(",")


def test_services_start_after_what_they_need(compose: dict[str, Any]) -> None:
    order = in_start_order(without_profile(compose["services"]))
    assert order.index("postgres") < order.index("migrate") < order.index("ray-head")
    assert order.index("ray-head") < order.index("ray-worker")
    assert order.index("migrate") < order.index("api")


def test_observability_is_a_profile(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) - set(without_profile(compose["services"])) == {
        "prometheus",
        "grafana",
    }


def test_health_checks_ask_ports_the_service_listens_on(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        for word in service["healthcheck"].get("test", ()):
            for port in re.findall(r"127\.0\.0\.1:(\d+)", word):
                assert int(port) in container_ports(service), name


def test_closing_reading_gives_the_api_the_token_that_prometheus_sends(
    root: Path, compose: dict[str, Any]
) -> None:
    closed = load(root / "deploy/compose.closed.yml", {})
    (api,) = closed["services"].values()
    assert api["environment"] == {"GROKTIME_READ_TOKEN_FILE": "/run/secrets/read_token"}
    assert api["secrets"] == compose["services"]["prometheus"]["secrets"] == ["read_token"]
    assert "read_token" in compose["secrets"]


def test_the_gpu_file_changes_only_services_of_the_main_file(
    root: Path, compose: dict[str, Any]
) -> None:
    gpu = load(root / "deploy/compose.gpu.yml", {})
    assert set(gpu["services"]) <= set(compose["services"])
    # The driver on the head decides what is trained on; workers are told.
    assert gpu["services"]["ray-head"]["environment"] == {"GROKTIME_DEVICE": "cuda"}
    devices = gpu["services"]["ray-worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["capabilities"] == ["gpu"]


def test_every_variable_of_the_compose_files_is_documented(root: Path) -> None:
    documented = (root / "deploy/README.md").read_text()
    for name in FILES:
        for variable in variables_of(root / name):
            assert f"`{variable}`" in documented, variable


def test_variables_are_filled_in_as_compose_does() -> None:
    text = "${A}-${B:-b}-${A:?no A}"
    assert interpolate(text, {"A": "a"}) == "a-b-a"
    assert interpolate({"x": [text, 1]}, {"A": "", "B": "c"} | {"A": "y"}) == {"x": ["y-c-y", 1]}
