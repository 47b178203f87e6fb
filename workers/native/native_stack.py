"""NativeStack: the Stack protocol on the compiled engine, one model after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import EngineError
from service.spec import RunSpec
from workers.devices import cpu_name
from workers.fingerprint import source_hash
from workers.model import FIRST_MOMENT, SECOND_MOMENT, initial_state, run_parameters
from workers.native.build import source_files
from workers.native.library import Library, Run, library, make_run
from workers.stack import METRICS, State
from workers.tasks import Dataset, make_dataset

_PREFIXES = ("", FIRST_MOMENT, SECOND_MOMENT)

# Layer 0's scores are tables over pairs of tokens: beyond this they no longer pay.
MAX_VOCABULARY = 1024


def supports(spec: RunSpec) -> bool:
    """Whether the engine knows this model: one head, RMSNorm, gated FFN, rope or none."""
    model = spec.model
    return (
        spec.vocabulary <= MAX_VOCABULARY
        and model.architecture == "transformer"
        and model.heads == 1
        and model.norm == "rms"
        and model.ffn == "gated"
        and model.positions in ("rope", "none")
    )


def flatten(spec: RunSpec, state: State) -> NDArray[np.float32]:
    """Weights and both moments as one array [3, P], in the order of workers/model.py."""
    names = [parameter.name for parameter in run_parameters(spec)]
    rows = [np.concatenate([state[prefix + n].ravel() for n in names]) for prefix in _PREFIXES]
    return np.array(rows, dtype=np.float32)


class NativeStack:
    """Implements workers.stack.Stack; runs may differ in everything, shapes too."""

    def __init__(
        self,
        specs: Sequence[RunSpec],
        *,
        states: Sequence[State] | None = None,
        epochs: Sequence[int] | None = None,
        datasets: Sequence[Dataset] | None = None,
        orders: Sequence[NDArray[np.int64]] | None = None,
        engine: Library | None = None,
    ) -> None:
        """Start each run from its state at its epoch, or from its seed.

        A replay gives its own `datasets` and `orders`: for each run [epochs, n_train], the order
        of examples in each epoch from the first.
        """
        for spec in specs:
            if not supports(spec):
                raise EngineError(f"the native engine does not know the model of run {spec.key}")
        self._library = engine or library()
        self._workspace = self._library.workspace()
        self._specs = list(specs)
        self._epochs = list(epochs) if epochs is not None else [0] * len(specs)
        self._orders = list(orders) if orders is not None else None
        self._runs: list[Run] = []
        for index, spec in enumerate(specs):
            state = states[index] if states is not None else initial_state(spec)
            data = datasets[index] if datasets is not None else make_dataset(spec)
            self._runs.append(make_run(spec, data, flatten(spec, state)))

    @property
    def specs(self) -> Sequence[RunSpec]:
        return self._specs

    @property
    def epochs(self) -> Sequence[int]:
        return self._epochs

    @property
    def fingerprint(self) -> str:
        """Python sources that decide data and weights, C sources, compiler, flags, processor."""
        made = self._library.build
        files = tuple(f"native/{path.name}" for path in source_files())
        return "; ".join(
            [
                "native",
                f"source {source_hash(files)}",
                "own matrix products",
                made.compiler,
                " ".join(made.flags),
                cpu_name(),
                self._library.instructions,
                "threads 1",
            ]
        )

    def advance(self, epochs: int) -> NDArray[Any]:
        """Train every model for `epochs` epochs; METRICS of shape [models, epochs]."""
        curves = np.empty((len(self._runs), epochs), dtype=METRICS)
        for index, (spec, run) in enumerate(zip(self._specs, self._runs, strict=True)):
            done = self._epochs[index]
            orders = self._orders[index][done : done + epochs] if self._orders else None
            curves[index] = self._workspace.train(run, done, epochs, orders)
            # One evaluation gives both; a run records what it asked for.
            if not spec.eval_train:
                curves[index]["train_correct_eval"] = -1
            if not spec.records_bits:
                curves[index]["bits"] = np.nan
            self._epochs[index] = done + epochs
        return curves

    def state(self, model: int) -> State:
        """A copy of the model's weights and moments by name."""
        state: dict[str, NDArray[Any]] = {}
        for prefix, row in zip(_PREFIXES, self._runs[model].flat, strict=True):
            start = 0
            for parameter in run_parameters(self._specs[model]):
                values = row[start : start + parameter.size]
                state[prefix + parameter.name] = values.reshape(parameter.shape).copy()
                start += parameter.size
        return state

    def remove(self, models: Sequence[int]) -> None:
        """Take models out of the stack; the others keep their order."""
        gone = set(models)
        kept = [index for index in range(len(self._runs)) if index not in gone]
        self._specs = [self._specs[index] for index in kept]
        self._epochs = [self._epochs[index] for index in kept]
        self._runs = [self._runs[index] for index in kept]
        if self._orders is not None:
            self._orders = [self._orders[index] for index in kept]
