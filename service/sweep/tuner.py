"""One Ray Tune experiment over some bundles: one trial a bundle, retried once where it stands."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from groktime.service.logs import redact
from groktime.service.sweep.plan import Bundle
from groktime.workers.trainable import BundleTrainable, WorkerConfig

LONGEST_REASON = 300  # characters
RETRIES = 1  # a crashed bundle goes on once from its checkpoints before it is split


@dataclass(frozen=True)
class Resources:
    """What one bundle takes on the cluster, and how many may run at once (None: all that fit)."""

    gpus: float = 0.0
    at_once: int | None = None


@dataclass
class Outcomes(tune.Callback):
    """What became of the trials; only what went wrong is kept."""

    crashed: dict[int, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    retried: int = 0
    training_seconds: float = 0.0

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        self.training_seconds += result.get("training_seconds", 0.0)
        if result.get("refused"):
            self.refused.add(result["refused"])

    def on_trial_recover(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self.retried += 1

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self.crashed[trial.config["bundle"]["number"]] = _summary(trial)


def _summary(trial: Trial) -> str:
    """One line of what Ray wrote about the last crash: the exception, or that the worker died."""
    if not trial.error_file:
        return "unknown"
    text = Path(trial.error_file).read_text("utf-8", errors="replace")
    last = text.rpartition("Failure # ")[2]
    lines = [line.strip() for line in last.splitlines()[1:] if line.strip()]
    if not lines:
        return "unknown"
    died = next((line for line in lines if "died" in line), None)
    return redact(died or lines[-1])[:LONGEST_REASON]


def tune_bundles(
    bundles: Sequence[Bundle], worker: WorkerConfig, sweep: str, resources: Resources
) -> Outcomes:
    """Train the bundles; returns when all have ended, well or badly.

    Secrets travel in `worker` through the object store, never in a trial's config, which Ray
    shows on its dashboard.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    outcomes = Outcomes()
    configs = [
        {
            "number": number,
            "name": f"{sweep}/{number}",
            "stacks": [[run.id for run in stack.runs] for stack in bundle.stacks],
        }
        for number, bundle in enumerate(bundles)
    ]
    asked: dict[str, float] = {"cpu": 1, **({"gpu": resources.gpus} if resources.gpus else {})}
    trainable = tune.with_resources(
        tune.with_parameters(BundleTrainable, worker=worker), dict(asked)
    )
    with tempfile.TemporaryDirectory(prefix="groktime-tune-") as storage:
        tune.Tuner(
            trainable,
            param_space={"bundle": tune.grid_search(configs)},
            tune_config=tune.TuneConfig(
                reuse_actors=True,
                max_concurrent_trials=resources.at_once,
                trial_name_creator=lambda trial: f"bundle_{trial.config['bundle']['number']}",
                trial_dirname_creator=lambda trial: f"bundle_{trial.config['bundle']['number']}",
            ),
            run_config=tune.RunConfig(
                name=sweep,
                storage_path=storage,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                # Runs have checkpoints of their own; a trial that cannot save would be failed.
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                callbacks=[outcomes],
                log_to_file=False,
            ),
        ).fit()
    return outcomes
