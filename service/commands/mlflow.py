"""A suite's runs as MLflow keeps them in files, so that its viewer opens them.

One experiment holds the suite, one MLflow run each of its runs: settings as parameters, every epoch
as metrics. The layout is that of MLflow's file store
(`MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri DIR`).
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import Connection, text

from groktime.db.queries.suites import get_suite
from groktime.service.errors import InputError
from groktime.service.spec import COUNTS, METRICS, RunSpec

RUNS = """
SELECT r.id, r.key, r.spec, r.state, r.reason, r.seconds, r.n_train, r.n_val, r.last_epoch,
    r.created_at, r.closed_at FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite AND r.last_epoch > 0 ORDER BY r.id
"""
CURVE = f"""
SELECT epoch, {", ".join(name for name, _ in METRICS)} FROM curve
WHERE run_id = :run ORDER BY epoch
"""
STATUS = {"done": 3, "failed": 4, "running": 1}  # as MLflow numbers them; else 2, scheduled
ACCURACIES = {name: name.replace("correct", "accuracy") for name in COUNTS}


def export_mlflow(connection: Connection, name: str, directory: Path) -> int:
    """Write the suite's runs that have begun into a new folder of the store; how many they are.

    The experiment appears when it is complete; an earlier export of the suite is refused.
    """
    suite = get_suite(connection, name)
    experiment = str(int(hashlib.sha256(name.encode()).hexdigest()[:15], 16))
    target = directory / experiment
    if target.exists():
        raise InputError(f"--mlflow {directory}: holds {name} already; accepted: another folder")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        stage = tempfile.TemporaryDirectory(dir=directory, prefix=".export-")
    except OSError as problem:
        raise InputError(f"--mlflow {directory}: {problem.strerror}; accepted: a folder") from None
    runs = connection.execute(text(RUNS), {"suite": suite.id}).all()
    with stage as folder:
        root = Path(folder) / experiment
        root.mkdir()
        now = _milliseconds(max((run.created_at for run in runs), default=None))
        about = {
            "artifact_location": target.resolve().as_uri(),
            "creation_time": now,
            "experiment_id": experiment,
            "last_update_time": now,
            "lifecycle_stage": "active",
            "name": name,
        }
        (root / "meta.yaml").write_text(yaml.safe_dump(about))
        for run in runs:
            _write_run(connection, run, root, experiment, target)
        root.replace(target)
    return len(runs)


def _write_run(connection: Connection, run: Any, root: Path, experiment: str, target: Path) -> None:
    identity = run.key[:32]
    spec = RunSpec.model_validate({k: v for k, v in run.spec.items() if k != "version"})
    columns = spec.columns()
    folder = root / identity
    for part in ("metrics", "params", "tags", "artifacts"):
        (folder / part).mkdir(parents=True)
    begin, end = _milliseconds(run.created_at), _milliseconds(run.closed_at)
    about = {
        "artifact_uri": (target / identity / "artifacts").resolve().as_uri(),
        "end_time": end or None,
        "entry_point_name": "",
        "experiment_id": experiment,
        "lifecycle_stage": "active",
        "run_id": identity,
        "run_name": f"{spec.kind} p={spec.data.prime} d={spec.model.width} seed={spec.seed}",
        "run_uuid": identity,
        "source_name": "",
        "source_type": 4,
        "source_version": "",
        "start_time": begin,
        "status": STATUS.get(run.state, 2),
        "tags": [],
        "user_id": "groktime",
    }
    (folder / "meta.yaml").write_text(yaml.safe_dump(about))
    for name, value in columns.items():
        if value is not None:
            (folder / "params" / name).write_text(str(value))
    tags = {"mlflow.runName": about["run_name"], "groktime.key": run.key, "groktime.run": run.id}
    if run.reason:
        tags["groktime.reason"] = run.reason
    for name, value in tags.items():
        (folder / "tags" / name).write_text(str(value))
    lines: dict[str, list[str]] = {}
    for name, epoch, value in _measured(connection, run):
        lines.setdefault(name, []).append(f"{begin} {value!r} {epoch}\n")
    for name, content in lines.items():
        (folder / "metrics" / name).write_text("".join(content))


def _measured(connection: Connection, run: Any) -> Iterator[tuple[str, int, float]]:
    """Metric, epoch and value; counts of correct answers as accuracies."""
    sizes = {"train_correct": run.n_train, "train_correct_eval": run.n_train}
    for row in connection.execute(text(CURVE), {"run": run.id}).mappings():
        for name, _ in METRICS:
            value = row[name]
            if value is None or not math.isfinite(value):
                continue
            if name in ACCURACIES:
                yield ACCURACIES[name], row["epoch"], value / sizes.get(name, run.n_val)
            else:
                yield name, row["epoch"], float(value)


def _milliseconds(moment: datetime | None) -> int:
    return 0 if moment is None else int(moment.timestamp() * 1000)
