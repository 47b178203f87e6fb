"""Cap(d), C_model and P_mem: how many bits a model of P parameters can memorise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from scipy import stats
from scipy.special import stdtrit

from groktime.service.analysis import Method, check_method
from groktime.service.analysis.inputs import CapacityRuns, FloatArray
from groktime.service.errors import AnalysisError

PAPER_C_MODEL = 2.16  # bits per parameter, as the paper prints it
SAG = 0.05  # a curve that ends this share below its maximum is sagging

SOFTNESS = 0.01  # residuals beyond this share of the curve's height count linearly
FEW_WIDTHS = 3  # too few to resample: their line has one degree of freedom, and a t interval
GRID = 33  # points per side of the search grid
ZOOMS = 8  # each narrows it eightfold
KINK = 1e-6  # the search finds slope and plateau to better than this share

Source = Literal["fitted", "matched_suite", "paper"]
Flag = Literal["not_saturated", "sagging", "last_batch_dip"]
IntervalKind = Literal["bootstrap", "t"]  # widths resampled, or least squares with few widths


@dataclass(frozen=True)
class BitsPerParameter:
    """C_model and where it came from, which is part of every answer that uses it.

    fitted: from the suite's capacity runs at the cell's setting; matched_suite: from runs there
    that another suite of this database has trained, inherited or not; paper: the published
    constant, for want of a fit.
    """

    value: float
    low: float | None = None
    high: float | None = None
    level: float | None = None
    interval: Annotated[
        IntervalKind | None,
        Field(description="over resampled widths, or least squares' with three; null: none"),
    ] = None
    source: Source = "fitted"
    suite: Annotated[str | None, Field(description="whose capacity runs; null: the paper's")] = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """Cap of one width: the plateau of its capacity curve M_T(n), bits.

    `not_saturated`: no n lay past the fitted kink, so the plateau is a lower bound;
    `sagging`: M_T falls again past its maximum. `error` is the standard error of the plateau over
    its points: dataset sizes and seeds.
    """

    width: int
    params: int
    capacity: Annotated[float, Field(description="bits")]
    low: float | None = None
    high: float | None = None
    flags: Annotated[tuple[Flag, ...], Field(description="not_saturated, sagging, last_batch_dip")]
    error: Annotated[
        float | None, Field(description="standard error over the points on the plateau")
    ] = None


@dataclass(frozen=True)
class CapacityFit:
    """Cap = intercept + C·P by least squares.

    The interval carries the widths and, of each plateau, its dataset sizes and seeds.
    """

    slope: Annotated[float, Field(description="C_model, bits per parameter")]
    low: float | None
    high: float | None
    level: float
    interval: Annotated[
        IntervalKind | None,
        Field(description="over resampled widths, or least squares' with three; null: none"),
    ]
    intercept: float
    intercept_low: float | None
    intercept_high: float | None
    r_squared: float | None
    widths: int


@dataclass(frozen=True, eq=False)
class Capacity:
    """The plateau of every width, and the line over those used."""

    method: Method
    plateaus: tuple[Plateau, ...]
    used: tuple[int, ...]  # widths in the line
    fit: CapacityFit | None  # None when fewer than two widths can be used
    missing: int

    @property
    def c_model(self) -> BitsPerParameter | None:
        """The line's slope as what answers carry."""
        if self.fit is None:
            return None
        all_used = not any("not_saturated" in plateau.flags for plateau in self.plateaus)
        return BitsPerParameter(
            self.fit.slope,
            low=self.fit.low,
            high=self.fit.high,
            level=None if self.fit.low is None else self.fit.level,
            interval=self.fit.interval,
            note="" if all_used else "some widths never saturated",
        )


def p_mem(k_mem: float, c_model: BitsPerParameter) -> float:
    """P_mem = K_mem / C_model: the capacity threshold in parameters."""
    return k_mem / c_model.value


def choose_c_model(
    fitted: Capacity | None, matched: Capacity | None = None, name: str = ""
) -> BitsPerParameter:
    """The suite's own fit, else a matched suite's (of that name), else the paper's constant."""
    if fitted is not None and fitted.c_model is not None:
        return replace(fitted.c_model, suite=name)
    if matched is not None and matched.c_model is not None:
        return replace(matched.c_model, source="matched_suite", suite=name, note=name)
    return BitsPerParameter(PAPER_C_MODEL, source="paper", note="no fit exists")


def capacity(
    runs: CapacityRuns,
    *,
    method: str = "robust",
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Capacity:
    """Plateau of every width's M_T(n) and the line of Cap against P.

    robust: the hinge min(s·n·log2 V, Cap) by soft-L1 least squares; widths never saturated are
    left out of the line when two others remain. paper: the maximum over n, all widths.
    """
    chosen = check_method(method)
    if len(runs) == 0:
        raise AnalysisError("capacity: no runs; at least one width with two sizes is needed")
    plateaus = tuple(
        _plateau(runs, int(w), chosen, level)
        for w in sorted(np.unique(runs.width), key=lambda w: runs.params[runs.width == w][0])
    )
    saturated = tuple(p for p in plateaus if "not_saturated" not in p.flags)
    used = saturated if chosen == "robust" and len(saturated) >= 2 else plateaus
    params = np.array([p.params for p in used])
    caps = np.array([p.capacity for p in used])
    missing = int(sum(runs.missing.values()))
    if len(np.unique(params)) < 2:
        return Capacity(chosen, plateaus, (), None, missing)
    line = stats.linregress(params, caps)
    kind: IntervalKind | None = None
    errors = np.array([p.error or 0.0 for p in used])
    low, high = _line_bootstrap(params, caps, errors, level, n_resamples, seed)
    if low[0] is not None:
        kind = "bootstrap"
    elif len(params) == FEW_WIDTHS:
        kind = "t"
        reach = float(stdtrit(len(params) - 2, 0.5 + level / 2))
        own = _line_errors(params, errors)
        slope_half = reach * max(float(line.stderr), own[0])
        intercept_half = reach * max(float(line.intercept_stderr), own[1])
        low = (float(line.slope - slope_half), float(line.intercept - intercept_half))
        high = (float(line.slope + slope_half), float(line.intercept + intercept_half))
    fit = CapacityFit(
        slope=float(line.slope),
        low=low[0],
        high=high[0],
        level=level,
        interval=kind,
        intercept=float(line.intercept),
        intercept_low=low[1],
        intercept_high=high[1],
        r_squared=float(line.rvalue**2),
        widths=len(used),
    )
    return Capacity(chosen, plateaus, tuple(p.width for p in used), fit, missing)


def _plateau(runs: CapacityRuns, width: int, method: Method, level: float) -> Plateau:
    here = runs.width == width
    order = np.argsort(runs.n[here], kind="stable")
    n, bits = runs.n[here][order], runs.bits[here][order]
    peak = float(bits.max())
    label_bits = float(np.log2(runs.vocabulary))
    sagging: tuple[Flag, ...] = ("sagging",) if bits[-1] < (1 - SAG) * peak else ()
    params = int(runs.params[here][0])
    if method == "paper" or len(n) < 3:
        growing = np.argmax(bits) == len(bits) - 1
        flags = ("not_saturated", *sagging) if growing else sagging
        return Plateau(width=width, params=params, capacity=peak, flags=flags)
    slope, cap, error, count = hinge(n * label_bits, bits)
    if slope * n[-1] * label_bits <= cap * (1 + KINK):
        # Beyond the data the hinge is free; the maximum is a lower bound.
        flags = ("not_saturated", *sagging)
        return Plateau(width=width, params=params, capacity=peak, flags=flags)
    half = None if error is None else float(stdtrit(count - 1, 0.5 + level / 2)) * error
    return Plateau(
        width=width,
        params=params,
        capacity=cap,
        error=error,
        low=None if half is None else cap - half,
        high=None if half is None else cap + half,
        flags=sagging,
    )


def hinge(complexity: FloatArray, bits: FloatArray) -> tuple[float, float, float | None, int]:
    """Fit min(s·K, Cap) to M_T(K) with s ≤ 1, by all points: sizes and seeds.

    Returns s, Cap, its standard error as that of a mean over the points on the plateau (None with
    fewer than two), and their number. Residuals are scaled to the curve's height so that soft-L1
    bends at one per cent of it.
    """
    peak = max(float(bits.max()), 1.0)
    x, y = complexity / peak, bits / peak
    slope, cap = _least_soft_l1(x, y)
    on_plateau = slope * x >= cap * (1 - KINK)
    count = int(on_plateau.sum())
    if count < 2:
        return slope, cap * peak, None, count
    spread = float(np.sqrt(np.sum((y[on_plateau] - cap) ** 2) / (count - 1)))
    return slope, cap * peak, float(spread / np.sqrt(count) * peak), count


def _least_soft_l1(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """(s, Cap) minimising Σ 2(√(1 + (r/δ)²) − 1), r = min(s·x, Cap) − y.

    The cost has a kink and may have several valleys, so it is searched on a grid that zooms
    in on its best point instead of following a gradient.
    """
    s_low, s_high, cap_low, cap_high = 0.0, 1.0, 0.0, 1.2
    slope, cap = 1.0, 1.0
    for _ in range(ZOOMS):
        slopes = np.linspace(s_low, s_high, GRID)
        caps = np.linspace(cap_low, cap_high, GRID)
        fitted = np.minimum(slopes[:, None, None] * x, caps[None, :, None])
        cost = np.sqrt(1 + ((fitted - y) / SOFTNESS) ** 2).sum(axis=2)
        i, j = np.unravel_index(int(np.argmin(cost)), cost.shape)
        slope, cap = float(slopes[i]), float(caps[j])
        s_step, cap_step = slopes[1] - slopes[0], caps[1] - caps[0]
        s_low, s_high = max(slope - 2 * s_step, 0.0), min(slope + 2 * s_step, 1.0)
        cap_low, cap_high = cap - 2 * cap_step, cap + 2 * cap_step
    return slope, cap


Bounds = tuple[float | None, float | None]


def _line_errors(params: FloatArray, errors: FloatArray) -> tuple[float, float]:
    """Standard errors of slope and intercept that the plateaus' own errors make."""
    design = np.column_stack([params, np.ones_like(params)])
    weights = np.linalg.pinv(design)
    slope, intercept = np.sqrt(weights**2 @ errors**2)
    return float(slope), float(intercept)


def _line_bootstrap(
    params: FloatArray,
    caps: FloatArray,
    errors: FloatArray,
    level: float,
    n_resamples: int,
    seed: int,
) -> tuple[Bounds, Bounds]:
    """Percentile interval of slope and intercept from resampled widths; None below four.

    Every resampled plateau is moved by an error of its own, so that the interval carries dataset
    sizes and seeds as well as widths.

    Resamples of a single width have no slope and are left out.
    """
    if len(params) < 4 or n_resamples < 1:
        return (None, None), (None, None)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(params), size=(n_resamples, len(params)))
    x, y = params[drawn], caps[drawn] + errors[drawn] * rng.standard_normal(drawn.shape)
    x_mean, y_mean = x.mean(axis=1), y.mean(axis=1)
    spread = ((x - x_mean[:, None]) ** 2).sum(axis=1)
    proper = np.ptp(x, axis=1) > 0
    slope = ((x - x_mean[:, None]) * (y - y_mean[:, None])).sum(axis=1)[proper] / spread[proper]
    intercept = y_mean[proper] - slope * x_mean[proper]
    tail = 0.5 * (1 - level)
    s = np.quantile(slope, [tail, 1 - tail])
    i = np.quantile(intercept, [tail, 1 - tail])
    return (float(s[0]), float(i[0])), (float(s[1]), float(i[1]))
