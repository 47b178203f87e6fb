"""Small runs of every kind and variant, and a sink that keeps what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from groktime.service.spec import (
    Data,
    FixedStop,
    ModelSpec,
    ModularData,
    OptimiserSpec,
    Outcome,
    RandomData,
    RunSpec,
    Stop,
    ThresholdStop,
)

VARIANTS: dict[str, dict[str, Any]] = {
    "central": {"positions": "none"},
    "rope": {},
    "learned positions": {"positions": "learned"},
    "one layer": {"depth": 1},
    "one layer without positions": {"depth": 1, "positions": "none"},
    "three layers": {"depth": 3},
    "two heads": {"heads": 2},
    "two heads without positions": {"heads": 2, "positions": "none", "depth": 3},
    "released projection": {"heads": 2, "positions": "none", "released_head_projection": True},
    "layer norm": {"norm": "layer"},
    "plain FFN": {"ffn": "plain"},
    "plain FFN and layer norm": {"ffn": "plain", "norm": "layer", "depth": 3},
    "MLP": {"architecture": "mlp", "depth": 1, "positions": "none", "ffn": "plain"},
}


def make_run(
    *,
    kind: str | None = None,
    data: Data | None = None,
    stop: Stop | None = None,
    seed: int = 42,
    batch_size: int = 32,
    eval_train: bool = True,
    optimiser: dict[str, Any] | None = None,
    **model: Any,
) -> RunSpec:
    """A run of 66 training examples mod 11 unless told otherwise."""
    data = data or ModularData(prime=11, train_fraction=0.6)
    return RunSpec(
        kind=kind or ("grok" if data.n_val else "speed"),
        data=data,
        model=ModelSpec(**{"width": 8, **model}),
        optimiser=OptimiserSpec(batch_size=batch_size, **(optimiser or {})),
        stop=stop or FixedStop(max_epochs=6),
        eval_train=eval_train,
        seed=seed,
    )


def random_labels(n: int = 50, prime: int = 11) -> RandomData:
    return RandomData(prime=prime, n=n)


def memorising_run(seed: int = 42, max_epochs: int = 400, **model: Any) -> RunSpec:
    """A speed run that reaches its threshold within some dozens of epochs."""
    return make_run(
        data=random_labels(40),
        stop=ThresholdStop(max_epochs=max_epochs),
        seed=seed,
        optimiser={"lr": 1e-2},
        **{"width": 16, **model},
    )


class Recording:
    """A sink in memory; `fenced` runs are refused from the given epoch on."""

    def __init__(self, fenced: dict[int, int] | None = None) -> None:
        self.fenced = fenced or {}
        self.rows: dict[int, list[tuple[int, NDArray[Any]]]] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.taken: set[int] = set()  # runs known to have another owner
        self.flushes = 0

    def record(self, run: int, first_epoch: int, metrics: NDArray[Any]) -> bool:
        if first_epoch >= self.fenced.get(run, first_epoch + 1):
            return False
        self.rows.setdefault(run, []).append((first_epoch, metrics.copy()))
        return True

    def flush(self) -> None:
        self.flushes += 1

    def finish(self, run: int, outcome: Outcome) -> None:
        self.outcomes[run] = outcome

    def owns(self, run: int) -> bool:
        return run not in self.taken

    def curve(self, run: int) -> NDArray[Any]:
        """The run's epochs from the first recorded one; they must be consecutive."""
        expected = self.rows[run][0][0]
        for first_epoch, metrics in self.rows[run]:
            assert first_epoch == expected
            expected += len(metrics)
        return np.concatenate([metrics for _, metrics in self.rows[run]])


def same(left: NDArray[Any], right: NDArray[Any]) -> bool:
    """Bitwise equality, where the same NaN is the same."""
    return left.tobytes() == right.tobytes()
