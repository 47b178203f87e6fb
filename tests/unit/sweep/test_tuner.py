"""What the driver keeps of trials that have ended, and what it makes of a worker's silence."""

from __future__ import annotations

import pickle

import pytest
import ray
from ray.core.generated.common_pb2 import ActorDeathCause, ActorDiedErrorContext
from ray.tune.experiment import Trial

from groktime.service.sweep import tuner
from groktime.service.sweep.tuner import forget_metrics, node_is_gone


def test_a_trial_that_has_ended_keeps_its_last_result_and_no_statistics() -> None:
    trial = Trial("bundle", stub=True)
    result = {f"metric {i}": float(i) for i in range(15)}
    trial.update_last_result({**result, "training_iteration": 1})
    before = len(pickle.dumps(trial.run_metadata))
    forget_metrics(trial)
    assert len(pickle.dumps(trial.run_metadata)) < before / 2
    assert trial.last_result["metric 3"] == 3.0
    assert trial.get_json_state()


@pytest.mark.parametrize(
    ("node", "state", "reason", "expected"),
    [
        ("lives", "ALIVE", None, None),
        ("lives", "DEAD", "WORKER_DIED", False),
        ("lives", "DEAD", "NODE_DIED", True),
        ("lives", "DEAD", "OUT_OF_SCOPE", None),  # Tune has let go of it
        ("lives", "DEAD", "REF_DELETED", None),
        ("lives", "DEAD", "RAY_KILL", None),
        ("gone", "ALIVE", None, True),
        ("gone", "DEAD", "REF_DELETED", True),
    ],
)
def test_a_silent_workers_node_is_gone_once_ray_says_so_of_either(
    monkeypatch: pytest.MonkeyPatch,
    node: str,
    state: str,
    reason: str | None,
    expected: bool | None,
) -> None:
    cause = ActorDeathCause()
    if reason is not None:
        value = ActorDiedErrorContext.Reason.Value(reason)
        cause.actor_died_error_context.CopyFrom(ActorDiedErrorContext(reason=value))
    actor = {"Address": {"NodeID": node}, "State": state, "DeathCause": cause}
    monkeypatch.setattr(tuner, "actors", {"0a": actor}.get)
    nodes = [{"NodeID": "lives", "Alive": True}, {"NodeID": "gone", "Alive": False}]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert node_is_gone("0a") is expected
