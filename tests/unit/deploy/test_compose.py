"""docker-compose.yml keeps to the published schema and to what it promises about safety."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from compose_file import (
    UnsetVariable,
    container_ports,
    in_start_order,
    interpolate,
    load,
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
