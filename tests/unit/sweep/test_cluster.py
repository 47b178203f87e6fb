"""What a sweep asks of a cluster, and how it is kept from talking too much."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from groktime.service.errors import SweepError
from groktime.service.settings import Settings
from groktime.service.sweep import cluster
from groktime.service.sweep.cluster import (
    check_address,
    check_database_reaches,
    cluster_address,
    gpu_share,
    settle_authentication,
    slots_to_ask_for,
    slots_to_plan_for,
    waiting_bundles,
)
from groktime.service.sweep.jobs import job_environment, job_state, submit_job, withheld_url
from groktime.service.sweep.selection import SweepOptions
from groktime.workers.trainable import WorkerConfig

SOCKET = "postgresql+psycopg2://groktime@/groktime?host=/var/lib/groktime/pg"
SERVER = "postgresql://writer:secret@results.example/groktime"


def node(host: str, alive: bool = True) -> dict[str, Any]:
    return {"NodeManagerHostname": host, "Alive": alive}


def test_a_cluster_of_several_machines_needs_a_database_all_of_them_reach() -> None:
    with pytest.raises(SweepError, match=r"2 machines.*GROKTIME_DATABASE_URL"):
        check_database_reaches(SOCKET, [node("a"), node("b")])
    check_database_reaches(SERVER, [node("a"), node("b")])
    check_database_reaches(SOCKET, [node("a"), node("a"), node("b", alive=False)])


def test_the_refusal_of_a_database_hides_its_password() -> None:
    local = "postgresql://writer:secret@localhost/groktime"
    with pytest.raises(SweepError) as refusal:
        check_database_reaches(local, [node("a"), node("b")])
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("asked", "there", "told"),
    [
        (1.0, {"CPU": 4.0}, "the cluster has 0 GPUs and 4 CPUs"),
        (2.0, {"CPU": 4.0, "GPU": 1.0}, "the cluster has 1 GPUs"),
        (1.5, {"GPU": 4.0}, "only whole GPUs"),
        (-1.0, {"GPU": 4.0}, "negative"),
    ],
)
def test_gpus_that_cannot_be_given_are_refused(
    asked: float, there: dict[str, float], told: str
) -> None:
    with pytest.raises(SweepError, match=told):
        gpu_share(asked, "auto", there)


def test_fractions_of_gpus_that_are_there_are_accepted() -> None:
    assert gpu_share(0.25, "cuda", {"GPU": 1.0}) == 0.25
    assert gpu_share(0.0, "auto", {"GPU": 1.0}) == 0.0


@pytest.mark.parametrize(
    ("device", "there", "share"),
    [
        ("auto", {"CPU": 8.0}, 0.0),
        ("auto", {"CPU": 64.0, "GPU": 4.0}, 0.25),
        ("auto", {"CPU": 4.0, "GPU": 2.0}, 0.5),
        ("auto", {"CPU": 1.0, "GPU": 4.0}, 1.0),
        ("cuda", {"CPU": 8.0, "GPU": 1.0}, 0.25),
        ("cpu", {"CPU": 8.0, "GPU": 1.0}, 0.0),
    ],
)
def test_where_no_share_is_asked_for_the_cluster_decides(
    device: str, there: dict[str, float], share: float
) -> None:
    assert gpu_share(None, device, there) == share


def test_a_gpu_that_is_asked_for_and_missing_is_refused() -> None:
    with pytest.raises(SweepError, match="device = 'cuda', but the cluster has 0 GPUs and 4 CPUs"):
        gpu_share(None, "cuda", {"CPU": 4.0})


@pytest.mark.parametrize(
    ("gpus", "most", "named", "planned", "asked"),
    [
        (0.0, None, {}, 4, 4),
        (0.0, None, {"most_cpus": 64}, 64, 8),
        (0.0, 6, {"most_cpus": 64}, 6, 6),
        (0.0, None, {"most_cpus": 2}, 4, 4),  # it has more already
        (0.0, None, {"most_gpus": 64}, 4, 4),  # and this sweep trains on CPUs
        (0.25, None, {"most_gpus": 1000, "most_cpus": 64}, 4000, 8),
        (0.25, 2, {"most_gpus": 1000}, 2, 2),
    ],
)
def test_work_is_cut_for_what_an_autoscaler_may_bring_the_cluster_to(
    monkeypatch: pytest.MonkeyPatch,
    gpus: float,
    most: int | None,
    named: dict[str, int],
    planned: int,
    asked: int,
) -> None:
    monkeypatch.setattr(cluster, "members", lambda: ({"CPU": 4.0, "GPU": 1.0}, []))
    settings = Settings(**named)  # type: ignore[arg-type]
    assert slots_to_plan_for(gpus, most, settings) == planned
    assert slots_to_ask_for(gpus, most, settings) == asked


def test_an_autoscaler_of_a_large_cluster_sees_more_bundles_that_wait() -> None:
    assert [waiting_bundles(slots) for slots in (1, 16, 100, 4000)] == [16, 16, 100, 256]


def test_workers_that_would_see_no_gpu_are_refused_one() -> None:
    with pytest.raises(SweepError, match="'cuda:1' needs --gpus-per-bundle"):
        gpu_share(0.0, "cuda:1", {"GPU": 2.0})


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1:1", "cannot be reached: Connection refused"),
        ("nowhere.invalid:6379", "cannot be reached"),
        ("nowhere", "accepted: HOST:PORT of the head"),
        ("head:many", "accepted: HOST:PORT of the head"),
        ("head:99999", "accepted: HOST:PORT of the head"),
        ("http://127.0.0.1:8265", "with groktime submit; a sweep joins HOST:PORT"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(address: str, told: str) -> None:
    with pytest.raises(SweepError) as refusal:
        check_address(address)
    assert str(refusal.value).startswith(f"Ray at {address}: ")
    assert told in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_address_that_answers_is_left_to_ray() -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        check_address(f"127.0.0.1:{head.getsockname()[1]}")
    check_address("auto")


def test_jobs_are_asked_for_over_http() -> None:
    with pytest.raises(SweepError, match=r"127\.0\.0\.1:1: .*accepted: http://HOST:PORT"):
        job_state("job", "127.0.0.1:1")


def test_a_job_that_every_cluster_would_refuse_is_not_submitted() -> None:
    odd = SweepOptions(gpus_per_bundle=1.5)
    with pytest.raises(SweepError, match="only whole GPUs"):
        submit_job("demo", odd, Settings(), "http://127.0.0.1:1")


def test_the_address_given_wins_over_the_configured_and_the_jobs_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "of-the-job")
    assert cluster_address("given", "configured") == "given"
    assert cluster_address(None, "configured") == "configured"
    assert cluster_address(None, None) == "of-the-job"
    monkeypatch.delenv("RAY_ADDRESS")
    assert cluster_address(None, None) is None


def test_authentication_that_the_environment_names_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    settle_authentication(local=True)
    assert os.environ["RAY_AUTH_MODE"] == "disabled"


def test_a_workers_orders_do_not_show_the_password(tmp_path: Path) -> None:
    settings = Settings(checkpoints=tmp_path, database_url=SecretStr(SERVER))
    orders = WorkerConfig.of(settings, SERVER, "cpu")
    assert "secret" not in repr(orders)
    assert orders.database_url.get_secret_value() == SERVER


def test_workers_write_with_the_writers_url_where_there_is_one(tmp_path: Path) -> None:
    other = "postgresql://other:pass@results.example/groktime"
    settings = Settings(checkpoints=tmp_path, writer_url=SecretStr(other))
    orders = WorkerConfig.of(settings, SERVER, "cpu")
    assert orders.database_url.get_secret_value() == other


def test_a_password_goes_with_a_job_only_when_asked_for() -> None:
    settings = Settings(database_url=SecretStr(SERVER), lease_seconds=7.0)
    quiet = job_environment(settings)
    assert quiet["GROKTIME_LEASE_SECONDS"] == "7.0"
    assert "GROKTIME_DATABASE_URL" not in quiet
    assert withheld_url(settings) == SERVER
    assert "secret" not in str(quiet)
