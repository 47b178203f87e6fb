"""A suite written for MLflow: its files, and what MLflow itself reads from them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fixtures.database import Database

from groktime.service.commands.export import export_mlflow
from groktime.service.errors import InputError

READS = """
import sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
experiment = client.get_experiment_by_name("tiny")
runs = client.search_runs([experiment.experiment_id], max_results=1000)
history = client.get_metric_history(runs[0].info.run_id, "train_loss")
print(len(runs), runs[0].data.params["prime"], len(history), history[0].step)
"""


@pytest.fixture
def exported(seeded: Database, tmp_path: Path) -> Path:
    folder = tmp_path / "mlruns"
    with seeded.engine.connect() as connection:
        written = export_mlflow(connection, "tiny", folder)
        assert written == seeded.scalar(
            "SELECT count(*) FROM runs r JOIN suite_runs sr ON sr.run_id = r.id "
            "JOIN suites s ON s.id = sr.suite_id WHERE s.name = 'tiny' AND r.last_epoch > 0"
        )
    return folder


def test_every_epoch_of_a_run_is_there_with_its_settings(seeded: Database, exported: Path) -> None:
    (experiment,) = exported.iterdir()
    assert yaml.safe_load((experiment / "meta.yaml").read_text())["name"] == "tiny"
    run = next(path for path in experiment.iterdir() if path.is_dir())
    key = (run / "tags" / "groktime.key").read_text()
    epochs = seeded.scalar(f"SELECT last_epoch FROM runs WHERE key = '{key}'")
    lines = (run / "metrics" / "train_loss").read_text().splitlines()
    assert [int(line.split()[2]) for line in lines] == list(range(1, epochs + 1))
    assert (run / "params" / "width").read_text().isdigit()
    shares = (run / "metrics" / "train_accuracy").read_text().splitlines()
    assert all(0 <= float(line.split()[1]) <= 1 for line in shares)


def test_a_suite_is_not_written_twice_into_one_folder(seeded: Database, exported: Path) -> None:
    with (
        seeded.engine.connect() as connection,
        pytest.raises(InputError, match="holds tiny already"),
    ):
        export_mlflow(connection, "tiny", exported)


@pytest.mark.long
def test_mlflow_itself_reads_what_was_written(exported: Path, tmp_path: Path) -> None:
    (experiment,) = exported.iterdir()
    written = sum(path.is_dir() for path in experiment.iterdir())
    place = tmp_path / "mlflow"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "pip"), "install", "--quiet", "mlflow-skinny"]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"not checked: mlflow cannot be installed here: {installed.stderr[-200:]}")
    command = [str(place / "bin" / "python"), "-c", READS, str(exported)]
    environment = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true", "PYTHONPATH": ""}
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert told.returncode == 0, told.stderr
    runs, prime, epochs, first = told.stdout.split()[-4:]
    assert int(runs) == written
    assert prime in ("23", "29", "31")
    assert int(epochs) >= 1
    assert int(first) == 1
