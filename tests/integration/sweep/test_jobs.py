"""Sweeps as Ray jobs on a real head node that asks for a token."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from fixtures.commands import Commands, free_ports, settings_environment, wait_until
from fixtures.database import Database
from fixtures.http import asking

from groktime.api.client import Client
from groktime.db import embedded
from groktime.db.engine import parse_url
from groktime.service.sweep.jobs import job_state

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

TINY = """\
description: tiny
positions: none
primes: [7]
seeds: [1, 2]
settings: {batch_size: 8}
stop: {max_epochs: 300}
speed: {widths: [8, 16]}
grok: {widths: [8, 16]}
"""

HALF_HAVE_MEMORISED = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY first) FROM (
  SELECT min(c.epoch) AS first FROM curve c JOIN runs r ON r.id = c.run_id
  JOIN suite_runs sr ON sr.run_id = r.id JOIN suites s ON s.id = sr.suite_id
  WHERE s.name = 'tiny' AND r.kind = 'speed' AND r.width = {}
  AND c.train_correct >= 0.99 * r.n_train GROUP BY r.id
) AS memorised
"""


@dataclass(frozen=True)
class Head:
    """A head node with a database: its jobs address and the environment of its clients."""

    address: str
    database: Database
    environment: dict[str, str]


@pytest.fixture(scope="module")
def head(
    shared_commands: Commands,
    shared_database: Database,
    tmp_path_factory: pytest.TempPathFactory,
) -> Head:
    """A head of two CPUs that takes jobs of those who know the token of this test session."""
    port, jobs, agent = free_ports(3)
    settings = settings_environment(
        database_url=shared_database.url, checkpoints=tmp_path_factory.mktemp("checkpoints")
    )
    shared_commands.start(
        *("start", "--head", "--block", "--num-cpus", "2", "--port", str(port)),
        *("--node-ip-address", "127.0.0.1", "--object-store-memory", "100000000"),
        *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(jobs)),
        *("--dashboard-agent-listen-port", str(agent)),
        program=("ray",),
        **settings,
    )
    address = f"http://127.0.0.1:{jobs}"
    wait_until(lambda: takes_jobs(address))
    return Head(address, shared_database, dict(settings))


def takes_jobs(address: str) -> bool:
    """The dashboard answers before the agent that starts jobs is there."""
    from ray.job_submission import JobSubmissionClient

    try:
        JobSubmissionClient(address).submit_job(entrypoint="true")
    except (OSError, RuntimeError):
        return False
    return True


@pytest.fixture
def api(head: Head) -> Iterator[httpx.Client]:
    """A client of an API on the head's database that may start and stop sweeps there."""
    with asking(head.database.url, api_token="secret", ray_jobs_address=head.address) as client:
        client.headers["Authorization"] = "Bearer secret"
        yield client


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite file in a working directory of its own."""
    path = tmp_path / "work" / "tiny.yaml"
    path.parent.mkdir()
    path.write_text(TINY)
    return path


def ray_submit(head: Head, suite: Path) -> tuple[str, ...]:
    submit = ("job", "submit", "--address", head.address, "--working-dir", str(suite.parent))
    return (*submit, "--", "groktime", "sweep", f"./{suite.name}")


def test_a_job_with_a_wrong_token_is_refused(
    head: Head, commands: Commands, suite: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong-token"
    wrong.write_text(secrets.token_hex(32))
    refused = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(wrong)}
    code, output = commands.run(*ray_submit(head, suite), program=("ray",), **refused)
    assert code != 0
    assert "submitted successfully" not in output


def test_what_a_ray_job_has_trained_answers_where_the_speeds_cross(
    head: Head, commands: Commands, suite: Path, api: httpx.Client
) -> None:
    code, output = commands.run(*ray_submit(head, suite), program=("ray",))
    assert code == 0, output
    assert "tiny: 8 runs trained" in output

    found = api.get("/crossing", params={"suite": "tiny", "prime": 7})
    assert found.status_code == 200, found.text
    answer = found.json()
    assert answer["suite"] == "tiny"
    revision = "SELECT revision FROM suites WHERE name = 'tiny'"
    assert answer["revision"] == head.database.scalar(revision)
    assert answer["seeds"] == {"speed": 2, "grok": 2}
    assert answer["status"] == "mem_always_faster"  # no model generalises from so few examples
    measured = {point["width"]: point["value"] for point in answer["curves"]["t_mem"]}
    assert measured == {
        width: head.database.scalar(HALF_HAVE_MEMORISED.format(width)) for width in (8, 16)
    }


def test_a_submitted_sweep_is_noted_and_shown_with_its_log(
    head: Head, commands: Commands, suite: Path, api: httpx.Client
) -> None:
    mine, given = suite.with_name("mine.yaml"), suite.parent.parent / "given" / "given.yaml"
    mine.write_text(TINY.replace("[1, 2]", "[3]") + "inherits: [{suite: ../given/given.yaml}]\n")
    given.parent.mkdir()
    given.write_text(TINY.replace("[1, 2]", "[4]"))
    code, output = commands.run(
        *("submit", str(mine), "--address", head.address, "--kind", "speed", "--workers", "1"),
        **head.environment,
    )
    assert code == 0, output
    assert "mine: 2 runs trained" in output
    assert "succeeded" in output
    (noted,) = api.get("/sweeps", params={"suite": "mine"}).json()["items"]
    assert noted["state"] == "done"
    assert noted["filters"] == {"filters": {"kind": ["speed"]}, "resources": {"workers": 1}}
    assert f"submitted {noted['job_id']} as sweep {noted['id']}" in output
    detail = api.get(f"/sweeps/{noted['id']}").json()
    assert "mine: 2 runs trained" in detail["log"]

    late = api.delete(f"/sweeps/{noted['id']}")
    assert (late.status_code, late.json()["state"]) == (200, "done")


def test_the_api_starts_shows_and_stops_a_sweep(head: Head, api: httpx.Client) -> None:
    body = {"suite": "central", "filters": {"prime": [113], "kind": ["grok"]}}
    started = api.post("/sweeps", json={**body, "resources": {"workers": 1}})
    assert started.status_code == 202, started.text
    where = started.headers["Location"]
    assert started.json()["state"] == "submitted"

    def running() -> bool:
        shown = api.get(where).json()
        assert shown["state"] in ("submitted", "running"), shown
        return shown["state"] == "running" and "starting Ray" in "".join(shown["log"])

    wait_until(running)
    stopped = api.delete(where)
    assert (stopped.status_code, stopped.json()["state"]) == (200, "stopped")
    job = stopped.json()["job_id"]
    wait_until(lambda: job_state(job, head.address) == "STOPPED")
    assert api.get(where).json()["state"] == "stopped"
    assert api.delete(where).json()["state"] == "stopped"


def test_the_api_locates_a_cell_tells_how_far_it_is_and_ends_it(
    head: Head, api: httpx.Client
) -> None:
    settings = {"positions": "none", "batch_size": 8}
    question = {"seeds": 4, "widths": (4, 64), "max_epochs": 200_000, "max_runs": 40}
    with Client(str(api.base_url), token="secret") as client:
        started = client.locate(11, settings=settings, resources={"workers": 1}, **question)
        assert started["suite"].startswith("locate-p11-")

        def chosen() -> bool:
            shown = client.get(f"sweeps/{started['id']}")
            assert shown["state"] in ("submitted", "running"), shown
            known = api.get("/suites").json()["items"]
            if started["suite"] not in {suite["name"] for suite in known}:
                return False
            (cell,) = client.placement(started["suite"])["cells"]
            return cell["runs"] + cell["open"] > 0

        wait_until(chosen)
        stopped = client.stop_sweep(started["id"])
        assert stopped["state"] == "stopped"
        wait_until(lambda: job_state(stopped["job_id"], head.address) == "STOPPED")
        (cell,) = client.placement(started["suite"])["cells"]
    assert cell["next"] or cell["open"], "what is left to do stays"


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    """Where Ray keeps its logs; a short path, since sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture
def bare_head(commands: Commands, tmp_path: Path, ray_folder: Path) -> str:
    """Jobs address of a head whose machine names no database, as on a laptop."""
    port, jobs, agent = free_ports(3)
    commands.start(
        *("start", "--head", "--block", "--num-cpus", "1", "--port", str(port)),
        *("--node-ip-address", "127.0.0.1", "--object-store-memory", "100000000"),
        *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(jobs)),
        *("--dashboard-agent-listen-port", str(agent), "--temp-dir", str(ray_folder)),
        program=("ray",),
        **settings_environment(home=tmp_path / "home"),
    )
    address = f"http://127.0.0.1:{jobs}"
    wait_until(lambda: takes_jobs(address))
    return address


def with_password(url: str) -> str:
    """The same server, asked with a password it does not need."""
    return parse_url(url).set(password="hunter2").render_as_string(hide_password=False)


def test_results_never_go_to_another_database_than_the_one_that_was_named(
    bare_head: str,
    ray_folder: Path,
    commands: Commands,
    database: Database,
    suite: Path,
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    asker = settings_environment(database_url=with_password(database.url), home=home)
    submit = ("submit", str(suite), "--address", bare_head, "--kind", "speed", "--width", "8")
    code, output = commands.run(*submit, **asker)
    assert code == 1, output
    assert "has a password and is not sent" in output
    assert "GROKTIME_DATABASE_URL is not set here" in output
    assert not embedded.data_directory(home).exists(), "an embedded server was started for the job"
    assert database.scalar("SELECT count(*) FROM runs") == 0
    assert database.scalar("SELECT state FROM sweeps") == "failed"

    code, output = commands.run(*submit, "--pass-database-url", **asker)
    assert code == 0, output
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'done'") == 2
    assert database.scalar("SELECT state FROM sweeps ORDER BY id DESC LIMIT 1") == "done"
    assert "hunter2" not in output
    logs = [path for path in ray_folder.rglob("logs/*") if path.is_file()]
    assert len(logs) > 5
    assert [path for path in logs if b"hunter2" in path.read_bytes()] == []
