"""What the driver keeps of trials that have ended."""

from __future__ import annotations

import pickle

from ray.tune.experiment import Trial

from groktime.service.sweep.tuner import forget_metrics


def test_a_trial_that_has_ended_keeps_its_last_result_and_no_statistics() -> None:
    trial = Trial("bundle", stub=True)
    result = {f"metric {i}": float(i) for i in range(15)}
    trial.update_last_result({**result, "training_iteration": 1})
    before = len(pickle.dumps(trial.run_metadata))
    forget_metrics(trial)
    assert len(pickle.dumps(trial.run_metadata)) < before / 2
    assert trial.last_result["metric 3"] == 3.0
    assert trial.get_json_state()
