"""The science of groktime: arrays and frames in, frozen dataclasses out.

Nothing here knows of the database, of Ray or of the web. The inputs, all in `inputs`:

FirstPassages   one kind of run in one cell against one threshold: width, params (P), seed,
                epoch (float, NaN = not reached), last_epoch, diverged, as parallel arrays with
                one entry per finished run; missing {width: runs that are not there}; clock,
                threshold and steps_per_epoch come along.
GrokRuns        runs on the structured task: e_train, e_val, t_gen (NaN = never) instead of
                epoch; `.generalisation()` gives the FirstPassages of T_gen.
CapacityRuns    width, params, n, bits (M_T) and the vocabulary.
Cells           a DataFrame, one row per cell: see `cells`.

Two conventions everywhere: method="paper" reproduces the released code, method="robust" (the
default) takes censoring into account and says what the data cannot tell. They and other
choices of a question are here, without numpy, so that a command which computes nothing starts
quickly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from groktime.service.errors import AnalysisError

if TYPE_CHECKING:
    from groktime.service.analysis.inputs import FloatArray

# Part of every cache key: raise it whenever an answer changes for the same runs.
ANALYSIS_VERSION = 10

Method = Literal["paper", "robust"]
Units = Literal["epochs", "steps"]

METHODS: tuple[Method, ...] = ("paper", "robust")


def check_method(method: str) -> Method:
    """Refuse a convention other than the two that exist."""
    for known in METHODS:
        if method == known:
            return known
    raise AnalysisError(f"method: {method!r} is not one of paper, robust")


@dataclass(frozen=True)
class MinimumDelay:
    """The delay from which a run counts as delayed: so many epochs, and such a share of E_train.

    The paper's: any delay at all. An offset between onset and crossing depends on it.
    """

    epochs: float = 1.0
    share: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.epochs < math.inf:
            raise AnalysisError(f"min_delay: {self.epochs:g} epochs; 1 or more are accepted")
        if not 0 <= self.share < math.inf:
            raise AnalysisError(f"min_delay_share: {self.share:g}; 0 or more is accepted")

    def after(self, e_train: FloatArray) -> FloatArray:
        """The smallest delay that counts, in epochs, for each E_train."""
        return (self.share * e_train).clip(min=self.epochs)


ANY_DELAY = MinimumDelay()
