"""Commands, variables, ports and names in the deployment's files are those of the code."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from fixtures.compose_file import container_ports
from ray.scripts.scripts import cli as ray_cli

from groktime.service import cli
from groktime.service.settings import Settings
from groktime.service.suites import load_suite

# Read by Ray and by tools, not by groktime's settings.
RAY_VARIABLES = {
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_USAGE_STATS_ENABLED",
}
SETTINGS = {f"GROKTIME_{name.upper()}" for name in Settings.model_fields}
# Of scripts, which look for the environment that groktime is installed in.
SCRIPT_VARIABLES = {"GROKTIME_VENV"}


def deployment_files(root: Path) -> list[Path]:
    files = [root / "docker-compose.yml", *(root / "deploy").rglob("*")]
    return [path for path in files if path.is_file() and "secrets" not in path.parts]


def text_of(path: Path) -> str:
    return path.read_text(errors="replace")


@pytest.fixture(scope="module")
def groktime() -> Any:
    return typer.main.get_command(cli.app)


def check_words(command: Any, words: list[str]) -> None:
    """Follow the words through the command's tree; every option must be one of its own."""
    while words and not words[0].startswith("-") and getattr(command, "commands", None):
        assert words[0] in command.commands, f"{command.name} has no command {words[0]}"
        command, words = command.get_command(None, words[0]), words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, f"{command.name} has no option {word}"


def quoted_commands(root: Path, program: str) -> Iterator[list[str]]:
    """Commands of that program where they cannot be prose: in backticks, after `--`, on a line."""
    line = r"[^\\`#\n|&;<>)]*"
    pattern = re.compile(rf"(?:`|-- |^){program} (?=[a-z])({line}(?:\\\n{line})*)", re.MULTILINE)
    for path in deployment_files(root):
        if path.suffix not in (".py", ".json", ".txt", ".sql", ".conf"):
            for match in pattern.finditer(text_of(path)):
                yield shlex.split(match[1].replace("\\\n", " ").replace('"', ""))


def test_every_groktime_command_in_the_files_exists(root: Path, groktime: Any) -> None:
    found = list(quoted_commands(root, "groktime"))
    for words in found:
        check_words(groktime, words)
    assert len(found) >= 8


def test_commands_of_containers_exist(
    compose: dict[str, Any], kubernetes: list[dict[str, Any]], groktime: Any
) -> None:
    commands = [
        service["command"] for service in compose["services"].values() if "command" in service
    ]
    commands += [
        container["args"]
        for resource in kubernetes
        if resource["kind"] in ("Deployment", "Job")
        for container in resource["spec"]["template"]["spec"]["containers"]
    ]
    checked = 0
    for program, *words in commands:
        if program == "groktime":
            check_words(groktime, words)
        elif program == "ray":
            check_words(ray_cli, words)
        checked += program in ("groktime", "ray")
    assert checked == 6


def test_ray_start_parameters_of_the_cluster_exist(kubernetes: list[dict[str, Any]]) -> None:
    known = {option for p in ray_cli.commands["start"].params for option in p.opts}
    (cluster,) = (r["spec"] for r in kubernetes if r["kind"] == "RayCluster")
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        for name in group["rayStartParams"]:
            assert f"--{name}" in known


@pytest.mark.parametrize("name", ["onpremise", "aws"])
def test_ray_commands_of_the_launcher_exist(root: Path, name: str) -> None:
    config = yaml.safe_load((root / f"deploy/ray/{name}.yaml").read_text())
    for line in [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]:
        program, *words = shlex.split(line)
        assert program == "ray"
        check_words(ray_cli, words)


def test_every_variable_is_a_setting(root: Path) -> None:
    seen = set()
    for path in deployment_files(root):
        for name in re.findall(r"\bGROKTIME_[A-Z_]+\b", text_of(path)):
            plain = name.removesuffix("_FILE")
            assert plain in SETTINGS | SCRIPT_VARIABLES, f"{path}: {name}"
            seen.add(plain)
    assert {"GROKTIME_DATABASE_URL", "GROKTIME_WRITER_URL", "GROKTIME_READER_URL"} <= seen


def test_every_ray_variable_is_a_known_one(root: Path) -> None:
    for path in deployment_files(root):
        for name in re.findall(r"\bRAY_(?:AUTH|USAGE)[A-Z_]+\b", text_of(path)):
            assert name in RAY_VARIABLES, f"{path}: {name}"


def test_suites_named_in_the_files_exist(root: Path, compose: dict[str, Any]) -> None:
    swept = [
        words[1] for words in quoted_commands(root, "groktime") if words[0] == "sweep" and words[1:]
    ]
    named = {word for word in swept if re.fullmatch(r"[a-z][a-z_-]+", word)}
    named.add(compose["services"]["api"]["environment"]["GROKTIME_DEFAULT_SUITE"])
    assert "central" in named
    for name in named:
        load_suite(name)


def test_default_values_of_settings_stay_valid(compose: dict[str, Any], tmp_path: Path) -> None:
    secret = tmp_path / "database_url"
    secret.write_text("postgresql://groktime:secret@postgres:5432/groktime\n")
    for name, service in compose["services"].items():
        given = {
            key.removeprefix("GROKTIME_").lower(): secret if key.endswith("_FILE") else value
            for key, value in service.get("environment", {}).items()
            # The entrypoint reads the files and leaves only what is in them.
            if key in SETTINGS and not key.endswith("_FILE")
        }
        assert Settings(**given), name


def test_services_speak_to_each_other_on_ports_that_are_open(
    root: Path, compose: dict[str, Any]
) -> None:
    services = compose["services"]
    texts = [text_of(root / "deploy/make-secrets"), str(compose)]
    texts += [text_of(path) for path in (root / "deploy/prometheus").iterdir()]
    texts += [text_of(path) for path in (root / "deploy/grafana/provisioning").rglob("*.yml")]
    spoken = set()
    for text in texts:
        for name, port in re.findall(rf"\b({'|'.join(services)}):(\d{{4,5}})\b", text):
            assert int(port) in container_ports(services[name]), f"{name}:{port}"
            spoken.add((name, int(port)))
    assert {("postgres", 5432), ("ray-head", 6379), ("ray-head", 8265), ("api", 8000)} <= spoken
    assert ("prometheus", 9090) in spoken


def test_prometheus_finds_rays_metrics_where_ray_exports_them(
    root: Path, compose: dict[str, Any]
) -> None:
    config = yaml.safe_load(text_of(root / "deploy/prometheus/prometheus.yml"))
    (ray,) = (job for job in config["scrape_configs"] if job["job_name"] == "ray")
    (found,) = ray["dns_sd_configs"]
    for name in found["names"]:
        assert f"--metrics-export-port={found['port']}" in compose["services"][name]["command"]


def test_the_api_listens_where_its_port_is_published(compose: dict[str, Any]) -> None:
    api = compose["services"]["api"]
    assert api["ports"][0].endswith(f":{api['environment']['GROKTIME_PORT']}")


def test_logins_of_the_urls_are_created_with_the_database(root: Path) -> None:
    urls = re.findall(r"\(url (\w+) (\w+)\)", text_of(root / "deploy/make-secrets"))
    roles = text_of(root / "deploy/postgres/roles.sql")
    assert len(urls) == 3
    for login, password in urls:
        assert re.search(rf"CREATE ROLE {login} LOGIN PASSWORD :'{password}'", roles)
        assert f'$SECRETS/{password}"' in roles


def test_group_roles_are_those_the_migration_grants_to(root: Path) -> None:
    from groktime.db.engine import GRANTS

    roles = text_of(root / "deploy/postgres/roles.sql")
    assert set(re.findall(r"CREATE ROLE (\w+) NOLOGIN", roles)) == set(GRANTS)


def test_the_image_and_the_files_agree_on_the_user(
    root: Path, compose: dict[str, Any], kubernetes: list[dict[str, Any]]
) -> None:
    dockerfile = text_of(root / "deploy/Dockerfile")
    assert "USER 10001:10001" in dockerfile
    for name in ("migrate", "api", "ray-head", "ray-worker"):
        assert compose["services"][name]["user"] == "10001:10001"
    for resource in kubernetes:
        for user in re.findall(r"'runAsUser': (\d+)", str(resource)):
            assert user == "10001"


def test_the_database_url_reaches_kubernetes_by_secret_only(
    kubernetes: list[dict[str, Any]],
) -> None:
    text = str(kubernetes)
    assert "postgresql://" not in text
    keys = set(re.findall(r"'secretKeyRef': {'name': 'groktime-urls', 'key': '([\w-]+)'", text))
    assert keys == {"database-url", "writer-url", "reader-url", "api-token", "read-token"}


def test_pods_may_reach_postgres_and_the_pgbouncer_before_it(root: Path) -> None:
    bouncer = configparser.ConfigParser()
    bouncer.read(root / "deploy/postgres/pgbouncer.ini")
    assert bouncer["pgbouncer"]["pool_mode"] == "transaction"
    server = re.search(r"port=(\d+)", bouncer["databases"]["groktime"])
    assert server is not None
    policies = yaml.safe_load_all(text_of(root / "deploy/kuberay/base/networkpolicy.yaml"))
    (deny,) = (p["spec"] for p in policies if p["metadata"]["name"] == "groktime-deny")
    open_ports = {port["port"] for rule in deny["egress"] for port in rule["ports"]}
    assert {int(server[1]), int(bouncer["pgbouncer"]["listen_port"])} <= open_ports
