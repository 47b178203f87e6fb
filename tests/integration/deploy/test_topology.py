"""The compose topology as processes of this machine: what its commands and variables add up to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from fixtures.topology import Topology, TopologyError, postgres_binaries, running

SUITE = Path(__file__).with_name("topology_mini.yaml")
RUNS = 4

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def topology() -> Iterator[Topology]:
    try:
        postgres_binaries()
    except TopologyError as error:
        pytest.skip(str(error))
    if not os.path.isdir("/proc/self"):
        pytest.skip("needs Linux")
    with running() as started:
        yield started


@pytest.fixture(scope="module")
def swept(topology: Topology) -> str:
    """What `ray job submit` printed while the suite was trained."""
    done = topology.submit("groktime", "sweep", str(SUITE))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def login(topology: Topology, secret: str) -> Any:
    url = (topology.folder / "secrets" / secret).read_text()
    return psycopg2.connect(topology.translated(url, topology.places["api"]))


def test_a_submitted_job_trains_the_suite(swept: str) -> None:
    assert f"{RUNS} runs trained" in swept


@pytest.mark.usefixtures("swept")
def test_the_api_answers_what_the_workers_recorded(topology: Topology) -> None:
    status, body = topology.get("api", 8000, "/crossing?suite=topology_mini&prime=23")
    answer = json.loads(body)
    assert status == 200
    assert answer["suite"] == "topology_mini"
    assert answer["seeds"] == {"speed": 1, "grok": 1}
    assert answer["provenance"]["runs"] == {"speed": 2, "grok": 2}


@pytest.mark.usefixtures("swept")
def test_submitting_again_trains_nothing(topology: Topology) -> None:
    again = topology.submit("groktime", "sweep", str(SUITE))
    assert again.returncode == 0
    assert f"all {RUNS} runs are trained already" in again.stdout


@pytest.mark.usefixtures("swept")
def test_metrics_are_exported_where_prometheus_looks(topology: Topology) -> None:
    status, body = topology.get("api", 8000, "/metrics")
    assert status == 200
    assert 'groktime_runs{kind="grok",state="done"} 2.0' in body
    for name in ("ray-head", "ray-worker"):
        topology.wait(
            lambda name=name: "ray_node_cpu_utilization" in topology.get(name, 8080, "/metrics")[1],
            f"{name} to export its metrics",
        )


def test_a_job_without_the_token_is_refused(topology: Topology) -> None:
    refused = topology.submit("groktime", "sweep", str(SUITE), token=False)
    assert refused.returncode != 0
    assert "trained" not in refused.stdout
    status, _ = topology.get("ray-head", 8265, "/api/jobs/")
    assert status == 401


def test_the_workers_login_cannot_change_the_schema(topology: Topology) -> None:
    with login(topology, "writer_url") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM runs")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("CREATE TABLE mine (x integer)")


def test_the_apis_login_can_only_read(topology: Topology) -> None:
    with login(topology, "reader_url") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM runs")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("DELETE FROM runs")


def test_a_service_is_given_only_the_secrets_it_declares(topology: Topology) -> None:
    for name, place in topology.places.items():
        given = {path.name for path in place.paths["/run/secrets"].iterdir()}
        assert given == set(place.service.get("secrets", ())), name


def test_postgres_runs_with_the_tuned_settings(topology: Topology) -> None:
    with login(topology, "database_url") as connection, connection.cursor() as cursor:
        cursor.execute("SHOW shared_buffers")
        assert cursor.fetchone() == ("1GB",)
        cursor.execute("SHOW password_encryption")
        assert cursor.fetchone() == ("scram-sha-256",)
