"""Seeds drawn as blocks: resampling weights, and intervals from resampled values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from service.analysis.inputs import FloatArray


def seed_block_weights(n_seeds: int, n_resamples: int, seed: int) -> npt.NDArray[np.uint8]:
    """How often each seed is drawn in each bootstrap resample, (seeds, B).

    The same draw serves every width and both kinds of run: the same seed gives the same split
    everywhere, so widths are not independent and must be resampled together.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, n_seeds, size=(n_resamples, n_seeds))
    drawn += n_seeds * np.arange(n_resamples)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=n_resamples * n_seeds)
    counts = counts.reshape(n_resamples, n_seeds).T
    return np.ascontiguousarray(counts, dtype=np.uint8 if n_seeds < 256 else np.int64)


def quantile_outward(values: FloatArray, probability: float, *, upward: bool) -> float:
    """An order statistic at or beyond the quantile, so that infinities stay infinities."""
    at = probability * (len(values) - 1)
    index = int(np.ceil(at) if upward else np.floor(at))
    return float(np.partition(values, index)[index])
