"""The image from its Dockerfile and the services of docker-compose.yml in containers, for real."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from containers.__main__ import STORAGE, SUITE
from containers.images import (
    GROKTIME,
    ContainerError,
    Engine,
    make_base,
    make_groktime,
    make_postgres,
)
from containers.services import ULIMITS, Services, options, running
from fixtures.compose_file import load

ROOT = Path(__file__).resolve().parents[2]
RUNS = 4
OURS = ("ray-head", "ray-worker", "api")


@pytest.fixture(scope="module")
def engine() -> Engine:
    try:
        return Engine(STORAGE, lambda text: None)
    except ContainerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def image(engine: Engine) -> dict[str, Any]:
    make_base(engine)
    make_groktime(engine)
    return engine.inspect(GROKTIME)


@pytest.fixture(scope="module")
def services(engine: Engine, image: dict[str, Any]) -> Iterator[Services]:
    make_postgres(engine)
    with running(engine) as started:
        yield started


@pytest.fixture(scope="module")
def swept(services: Services) -> str:
    """What `ray job submit` printed while the suite was trained."""
    return services.submit(SUITE)


def test_a_service_is_confined_as_the_compose_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only root can give a folder away.
    monkeypatch.setattr(os, "chown", lambda *given: None)
    project = load(ROOT / "docker-compose.yml", {"SECRETS_DIR": "/s"})
    secrets = {name: f"/s/{name}" for name in project["secrets"]}
    words = options(project["services"]["ray-worker"], secrets, "gt", tmp_path)
    for wanted in (
        "--user=10001:10001",
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--pids-limit=4096",
        "--restart=unless-stopped",
        "--memory=8g",
        "--volume=gt-checkpoints:/var/lib/groktime/checkpoints",
        "--volume=/s/ray_token:/run/secrets/ray_token:ro",
        f"--volume={tmp_path}/groktime:/var/lib/groktime",
    ):
        assert wanted in words
    assert not any("api_token" in word for word in words)


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestInContainers:
    """What only containers can show."""

    def test_the_image_is_run_by_an_ordinary_user_with_a_health_check(
        self, image: dict[str, Any]
    ) -> None:
        config = image["Config"]
        assert config["User"] == "10001:10001"
        assert config["Entrypoint"] == ["tini", "--", "entrypoint"]
        assert config["Cmd"] == ["groktime", "serve"]
        assert any(v.startswith("PATH=/opt/groktime/bin:") for v in config["Env"])

    def test_the_image_has_the_programs_that_it_is_asked_for(
        self, engine: Engine, image: dict[str, Any]
    ) -> None:
        script = "for p in groktime ray rsync ssh gcc bash healthcheck; do command -v $p; done"
        run = ("run", "--rm", "--network=none", *ULIMITS, GROKTIME)
        assert len(engine.podman(*run, "bash", "--login", "-c", script).split()) == 7
        engine.podman(*run, "python", "-c", "import boto3, torch, groktime.api.app")

    def test_a_submitted_job_trains_the_suite(self, swept: str) -> None:
        assert f"{RUNS} runs trained" in swept

    @pytest.mark.usefixtures("swept")
    def test_the_api_answers_what_the_workers_recorded(self, services: Services) -> None:
        status, body = services.get(f"/crossing?suite={SUITE.stem}&prime=23")
        assert status == 200
        assert json.loads(body)["provenance"]["runs"] == {"speed": 2, "grok": 2}

    @pytest.mark.usefixtures("swept")
    def test_a_backup_gives_the_deployment_back(self, services: Services) -> None:
        """By the commands of deploy/README.md; logins keep their rights."""
        login = "--username=postgres"

        def rows(statement: str = "SELECT count(*) FROM curve") -> str:
            words = ("psql", login, "--quiet", "--tuples-only", "groktime", "--command", statement)
            return services.execute("postgres", *words).strip()

        before, backup = rows(), "/tmp/all.pgdump"
        dump = ("pg_dump", login, "--format=custom", f"--file={backup}", "groktime")
        services.execute("postgres", *dump)
        rows("TRUNCATE runs, curve CASCADE")
        assert int(before) > int(rows()) == 0
        words = ("--clean", "--if-exists", "--dbname=groktime", backup)
        services.execute("postgres", "pg_restore", login, *words)
        assert rows() == before
        assert f"all {RUNS} runs are trained already" in services.submit(SUITE)
        status, body = services.get(f"/runs?suite={SUITE.stem}")
        assert (status, json.loads(body)["total"]) == (200, RUNS)

    @pytest.mark.parametrize("service", OURS)
    def test_a_container_is_confined(self, services: Services, service: str) -> None:
        status = services.execute(service, "cat", "/proc/1/status")
        facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert facts["Uid"].split()[0] == "10001"
        assert int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0
        assert facts["NoNewPrivs"] == "1"
        probe = "touch /opt/groktime/x 2>/dev/null && echo written || echo refused"
        assert services.execute(service, "sh", "-c", probe).strip() == "refused"

    @pytest.mark.parametrize("service", OURS)
    def test_no_secret_is_in_what_inspect_shows(self, services: Services, service: str) -> None:
        shown = json.dumps(services.state(service)["Config"])
        for path in (services.folder / "secrets").iterdir():
            assert path.read_text() not in shown, path.name
