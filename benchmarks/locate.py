"""What locating a cell costs and how well it does it, on synthetic cells of the measured shape.

Each cell has the speed curves of a recorded prime (T_mem convex, as measured), moved a little;
seed noise is resampled from the recorded residuals, widths with two clusters included. Three
designs place the crossing and the onset of the same cells: the chooser of service/sweep/locate.py,
bisection with three seeds, and the paper's grid (counted, not simulated). What is compared are the
estimators of service/analysis on the runs each of them trained.

The chooser and what it expects of noise, slopes and scales come from the first two kinds of cells;
the held-out ones have other curves or other noise (networks with rotary positions), another spread
of the onset and other random numbers, and nothing was taken from them.
`--replay` lets the chooser choose among the runs of recorded suites instead, and compares with what
all of these runs say.

    python -m benchmarks.locate [--cells 300] [--quick] [--json] [--replay]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize

from groktime.db.export import RUNS, opened
from groktime.service.analysis.crossing import CrossingEstimate, crossing
from groktime.service.analysis.delay import OnsetEstimate, onset
from groktime.service.analysis.inputs import FirstPassages, GrokRuns
from groktime.service.spec import ladder_index
from groktime.service.sweep.locate import NARROW, SCAN, Grid, Progress, locate, sign_epochs
from groktime.service.sweep.priors import DEX, LOCATED_KINDS, Finding, LocatedKind, Run

RECORDINGS = Path(__file__).parents[1] / "recordings"
NOISE = {"central": "central-two-cores-released", "mini": "mini-released"}
ONSET_SCALE = {"central": 0.06, "mini": 0.12}  # ln P, as measured
# Curves and noise of cells that nothing was tuned on.
HELD_OUT = {
    "held out: central curves, rope noise": ("central-two-cores-released", "mini"),
    "held out: rope curves and noise": ("mini", "mini"),
}
HELD_OUT_SCALE, HELD_OUT_SEED = 0.09, 1_000_000
ONSET_OFFSET, ONSET_SPREAD = -0.29 * DEX, 0.10 * DEX  # of the onset from the crossing
WIDTHS = range(16, 258, 2)
PAPER_SPEED = (*range(20, 129, 4), *range(136, 257, 8))
PAPER_GROK = (*range(20, 129, 2), *range(130, 257, 10))
PAPER_SEEDS = 10
SEEDS = tuple(range(42, 52))
CAP = 5000
NEVER = 1e9  # ln T where generalising is impossible
AT_ONCE = 2  # runs trained side by side
RESAMPLES = 400  # for intervals where there are seeds enough


@dataclass(frozen=True)
class Curve:
    """ln T = a − γ·ln(1 − c/P): a power law far above c, impossible below it."""

    a: float
    gamma: float
    log_c: float

    def __call__(self, log_params: float) -> float:
        below = math.exp(self.log_c - log_params)
        return math.inf if below >= 1 else self.a - self.gamma * math.log1p(-below)

    def over(self, log_params: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The same at many sizes."""
        below = np.minimum(np.exp(self.log_c - log_params), 1.0)
        with np.errstate(divide="ignore"):
            found: np.ndarray[Any, Any] = self.a - self.gamma * np.log1p(-below)
        return found


@dataclass(frozen=True)
class Shape:
    """One recorded prime: its two curves and its size."""

    prime: int
    k_mem: float
    mem: Curve
    gen: Curve


@dataclass(frozen=True)
class Recorded:
    shapes: Sequence[Shape]
    residuals: dict[LocatedKind, list[np.ndarray[Any, Any]]]


def read(suite: str) -> Recorded:
    """Curves of medians and residuals of single runs from a recording."""
    index = (ladder_index(0.99) or 0) - 1
    times: dict[tuple[int, float], dict[LocatedKind, dict[int, list[float]]]] = defaultdict(
        lambda: {"speed": defaultdict(list), "grok": defaultdict(list)}
    )
    with opened(RECORDINGS / f"{suite}.groktime") as archive:
        for line in archive.read(RUNS).splitlines():
            run = json.loads(line)["run"]
            if run["state"] != "done" or run["kind"] == "capacity":
                continue
            first = run["first_online" if run["kind"] == "speed" else "first_val"][index]
            cell = times[run["prime"], run["k_mem"]][run["kind"]]
            cell[run["params"]].append(math.inf if first is None else math.log(first))
    shapes, residuals = [], {"speed": [], "grok": []}
    for (prime, k_mem), kinds in sorted(times.items()):
        curves = {}
        for kind, sizes in kinds.items():
            medians = {p: float(np.median(t)) for p, t in sizes.items()}
            reached = {p: t for p, t in medians.items() if math.isfinite(t)}
            if len(reached) >= 4:
                curves[kind] = fit(np.log(list(reached)), np.array(list(reached.values())))
            for found in sizes.values():
                finite = np.array([t for t in found if math.isfinite(t)])
                if len(finite) >= 5 and len(finite) == len(found):
                    residuals[kind].append(finite - np.median(finite))
        if len(curves) == 2:
            shapes.append(Shape(prime, k_mem, curves["speed"], curves["grok"]))
    return Recorded(shapes, residuals)


def fit(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> Curve:
    """Least squares; c stays below the smallest size that got there."""

    def error(theta: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        a, log_gamma, gap = theta
        log_c = x.min() - math.exp(gap)
        return a - math.exp(log_gamma) * np.log1p(-np.exp(log_c - x)) - y

    a, log_gamma, gap = optimize.least_squares(error, (y.min(), 1.0, 0.0), loss="soft_l1").x
    return Curve(float(a), math.exp(log_gamma), float(x.min() - math.exp(gap)))


class Cell:
    """A synthetic cell that answers what a run would have measured."""

    def __init__(self, shape: Shape, recorded: Recorded, scale: float, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape, self.recorded, self.scale = shape, recorded, scale
        self.shift = self.rng.normal(0, 0.05 * DEX)
        self.params = {d: 2 * (shape.prime + 2) * d + 2 * (16 * d * d + 2 * d) + d for d in WIDTHS}
        self._groups: dict[tuple[LocatedKind, int], np.ndarray[Any, Any]] = {}
        self._runs: dict[tuple[LocatedKind, int, int], Finding] = {}
        self.p_cross = self._truth()
        self.p_onset = self.p_cross + self.rng.normal(ONSET_OFFSET, ONSET_SPREAD)

    def _truth(self) -> float:
        x = np.linspace(math.log(self.params[16]), math.log(self.params[256]), 4001)
        d = self.shape.mem.over(x - self.shift) - np.minimum(
            self.shape.gen.over(x - self.shift), NEVER
        )
        ok = np.flatnonzero((d[:-1] > 0) & (d[1:] <= 0))
        if not len(ok):
            raise LookupError("no crossing")
        return float(x[ok[-1]])

    def mem(self, x: float) -> float:
        return self.shape.mem(x - self.shift)

    def gen(self, x: float) -> float:
        value = self.shape.gen(x - self.shift)
        return value if math.isfinite(value) else NEVER

    def run(self, kind: LocatedKind, width: int, seed: int) -> Finding:
        key = (kind, width, seed)
        if key in self._runs:
            return self._runs[key]
        x = math.log(self.params[width])
        groups = self.recorded.residuals[kind]
        if (kind, width) not in self._groups:
            # Seeds of a width share a recorded width's residuals, each its own while they last.
            self._groups[kind, width] = self.rng.permutation(groups[self.rng.integers(len(groups))])
        group = self._groups[kind, width]
        noise = group[(seed - SEEDS[0]) % len(group)] * math.sqrt(len(group) / (len(group) - 1))
        log_t = (self.mem(x) if kind == "speed" else self.gen(x)) + noise
        epoch = math.ceil(math.exp(min(log_t, 20.0)))
        delayed = None
        if kind == "grok":
            chance = 1 / (1 + math.exp(-(x - self.p_onset) / self.scale))
            delayed = bool(self.rng.random() < chance) if epoch <= CAP else None
        reached = epoch if epoch <= CAP else None
        self._runs[key] = Finding(kind, width, seed, reached, min(epoch, CAP), delayed)
        return self._runs[key]

    def cost(self, kind: LocatedKind, width: int, epochs: float) -> float:
        """Work of a run up to its end, in units of one epoch of one parameter and example."""
        passes = 4 if kind == "speed" else 5  # training, its own evaluation, and validation
        return epochs * passes * self.params[width]

    def grid(self) -> Grid:
        def seconds(kind: LocatedKind, width: int) -> float:
            x = math.log(self.params[width])
            centre = math.log(self.shape.k_mem) + math.log(4.6)
            expected = min(250.0 * math.exp(max(-4.0 * (x - centre), -2.0)), CAP)
            return self.cost(kind, width, expected if kind == "speed" else 300.0)

        return Grid(self.params, SEEDS, seconds, self.shape.k_mem)


@dataclass(frozen=True)
class Result:
    runs: int
    share: float  # of the paper's grid's work
    crossing: float | None  # error, dex
    onset: float | None
    covered_crossing: bool | None
    covered_onset: bool | None
    status: str


@dataclass(frozen=True)
class Estimate:
    """ln P of a point as it is reported, and its 95 % limits."""

    at: float | None
    low: float = -math.inf
    high: float = math.inf

    def error(self, truth: float) -> float | None:
        return None if self.at is None else (self.at - truth) / DEX

    def covers(self, truth: float) -> bool | None:
        return None if math.isinf(self.high - self.low) else self.low <= truth <= self.high


def estimate(cell: Cell | RecordedCell, findings: Sequence[Finding]) -> tuple[Estimate, Estimate]:
    """Both points by the estimators that are reported."""

    def column(kind: str, value: Callable[[Finding], float]) -> np.ndarray[Any, Any]:
        return np.array([value(f) for f in findings if f.kind == kind])

    def passage(f: Finding) -> float:
        return math.nan if f.epoch is None else f.epoch

    def size(f: Finding) -> float:
        return float(cell.params[f.width])

    mem = FirstPassages(
        column("speed", lambda f: f.width).astype(int),
        column("speed", size),
        column("speed", lambda f: f.seed).astype(int),
        column("speed", passage),
        column("speed", lambda f: f.last_epoch),
        located=True,
    )
    train = column("grok", lambda f: math.nan if f.delayed is None else f.last_epoch / 2)
    val = column(
        "grok",
        lambda f: math.nan if f.delayed is None else f.last_epoch / 2 * (1.5 if f.delayed else 1),
    )
    grok = GrokRuns(
        column("grok", lambda f: f.width).astype(int),
        column("grok", size),
        column("grok", lambda f: f.seed).astype(int),
        train,
        val,
        column("grok", passage),
        column("grok", lambda f: f.last_epoch),
        located=True,
    )
    cross = crossing(mem, grok.generalisation(), n_resamples=RESAMPLES).p_cross
    return _logarithms(cross), _logarithms(onset(grok).p_onset)


def _logarithms(found: CrossingEstimate | OnsetEstimate) -> Estimate:
    return Estimate(
        math.log(found.estimate) if found.estimate else None,
        math.log(found.low) if found.low else -math.inf,
        math.log(found.high) if found.high else math.inf,
    )


def work(cell: Cell, findings: Sequence[Finding], cut: bool) -> float:
    """What the runs cost; `cut`: speed runs that are only a sign were set aside at that epoch."""
    bracket = [w for w, p in cell.params.items() if abs(math.log(p) - cell.p_cross) < NARROW / 2]
    ends = sign_epochs(findings, bracket) if cut else {}
    return sum(
        cell.cost(
            f.kind,
            f.width,
            min(f.last_epoch, ends.get(f.width, math.inf)) if f.kind == "speed" else f.last_epoch,
        )
        for f in findings
    )


def paper_work(cell: Cell) -> float:
    """The whole grid of the paper at widths up to 256."""
    total = 0.0
    for kind, widths in (("speed", PAPER_SPEED), ("grok", PAPER_GROK)):
        for width in widths:
            x = math.log(cell.params[width])
            log_t = cell.mem(x) if kind == "speed" else cell.gen(x)
            epochs = min(math.exp(min(log_t, 20.0)), CAP)
            total += PAPER_SEEDS * cell.cost(kind, width, epochs)  # type: ignore[arg-type]
    return total


def locating(cell: Cell, precision: float) -> Result:
    findings: list[Finding] = []
    grid = cell.grid()
    while True:
        progress: Progress = locate(grid, findings, precision=precision)
        if progress.is_done or len(findings) > 150:
            break
        findings += [cell.run(c.kind, c.width, c.seed) for c in progress.choices[:AT_ONCE]]
    return judged(cell, findings, progress)


def judged(cell: Cell, findings: Sequence[Finding], progress: Progress | None) -> Result:
    cross, begin = estimate(cell, findings)
    share = work(cell, findings, cut=progress is not None) / paper_work(cell)
    status = (
        "bisection" if progress is None or progress.crossing is None else progress.crossing.status
    )
    return Result(
        len(findings),
        share,
        cross.error(cell.p_cross),
        begin.error(cell.p_onset),
        cross.covers(cell.p_cross),
        begin.covers(cell.p_onset),
        status,
    )


def bisection(cell: Cell, seeds: int = 3) -> Result:
    """Scan from the same start, then halve both brackets, three seeds of a kind at each width."""
    findings: dict[tuple[LocatedKind, int, int], Finding] = {}
    widths = sorted(cell.params)
    grid = cell.grid()

    def median(kind: LocatedKind, width: int) -> list[Finding]:
        for seed in SEEDS[:seeds]:
            findings[kind, width, seed] = cell.run(kind, width, seed)
        return [findings[kind, width, seed] for seed in SEEDS[:seeds]]

    def slower(width: int) -> bool:
        times = [[f.epoch or math.inf for f in median(k, width)] for k in ("speed", "grok")]  # type: ignore[arg-type]
        return float(np.median(times[0])) > float(np.median(times[1]))

    def prompt(width: int) -> bool:
        return sum(not f.delayed for f in median("grok", width)) > seeds / 2

    centre = math.log(cell.shape.k_mem) + math.log(4.6)
    for below, start in ((slower, centre), (prompt, centre + ONSET_OFFSET)):
        low = high = grid.nearest(start)
        while not below(low) and low > widths[0]:
            high, low = low, grid.nearest(grid.log_params(low) - SCAN)
        while below(high) and high < widths[-1]:
            low, high = high, grid.nearest(grid.log_params(high) + SCAN)
        while grid.log_params(high) - grid.log_params(low) > NARROW / 2:
            between = [w for w in widths if low < w < high]
            if not between:
                break
            middle = grid.nearest((grid.log_params(low) + grid.log_params(high)) / 2, between)
            low, high = (middle, high) if below(middle) else (low, middle)
    return judged(cell, list(findings.values()), None)


def summary(results: Sequence[Result]) -> dict[str, float]:
    def rms(values: Sequence[float | None]) -> float:
        there = [v for v in values if v is not None]
        return math.sqrt(sum(v * v for v in there) / max(1, len(there)))

    def share(values: Sequence[bool | None]) -> float:
        there = [v for v in values if v is not None]
        return sum(there) / len(there) if there else math.nan

    return {
        "cells": len(results),
        "runs, median": float(np.median([r.runs for r in results])),
        "runs, 90 %": float(np.quantile([r.runs for r in results], 0.9)),
        "work of the grid's, median %": 100 * float(np.median([r.share for r in results])),
        "RMSE crossing, dex": rms([r.crossing for r in results]),
        "RMSE onset, dex": rms([r.onset for r in results]),
        "median |error| crossing, dex": float(
            np.median([abs(r.crossing) for r in results if r.crossing is not None])
        ),
        "coverage crossing %": 100 * share([r.covered_crossing for r in results]),
        "coverage onset %": 100 * share([r.covered_onset for r in results]),
        "without a crossing": sum(r.crossing is None for r in results),
    }


def simulated(
    recorded: Recorded, scale: float, first: int, count: int, precision: float
) -> dict[str, dict[str, float]]:
    """Both designs on the same cells."""
    located: list[Result] = []
    bisected: list[Result] = []
    number = first
    while len(located) < count:
        shape = recorded.shapes[number % len(recorded.shapes)]
        number += 1
        try:
            cell = Cell(shape, recorded, scale, number)
        except LookupError:
            continue
        located.append(locating(cell, precision))
        bisected.append(bisection(Cell(shape, recorded, scale, number)))
    return {"located": summary(located), "bisection × 3 seeds": summary(bisected)}


class RecordedCell:
    """A recorded prime: the chooser may ask for the runs it has, and for no others."""

    def __init__(self, runs: Sequence[dict[str, Any]]) -> None:
        self.params = {run["width"]: run["params"] for run in runs}
        self.k_mem = float(runs[0]["k_mem"])
        self.runs = {(r["kind"], r["width"], r["seed"]): self._finding(r) for r in runs}
        self.seeds = sorted({seed for _, _, seed in self.runs})

    @staticmethod
    def _finding(run: dict[str, Any]) -> Finding:
        at = (ladder_index(0.99) or 0) - 1
        place = (run["kind"], run["width"], run["seed"])
        if run["kind"] == "speed":
            return Finding(*place, run["first_online"][at], run["last_epoch"])
        train, val = run["first_online"][at], run["first_val"][(ladder_index(0.98) or 0) - 1]
        delayed = None if train is None else val is None or val > train
        return Finding(*place, run["first_val"][at], run["last_epoch"], delayed)

    def chosen(self, precision: float) -> list[Finding]:
        grid = Grid(
            dict(sorted(self.params.items())),
            self.seeds,
            lambda kind, width: float(self.params[width]),
            self.k_mem,
        )
        every = itertools.product(LOCATED_KINDS, self.params, self.seeds)
        lost: set[Run] = {run for run in every if run not in self.runs}
        findings: list[Finding] = []
        while not (progress := locate(grid, findings, precision=precision, lost=lost)).is_done:
            asked = progress.choices[:AT_ONCE]
            findings += [self.runs[c.kind, c.width, c.seed] for c in asked]
        return findings


def replayed(suite: str, precision: float) -> dict[str, float]:
    """The chooser among a recording's runs, beside the estimates of all of them."""
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    with opened(RECORDINGS / f"{suite}.groktime") as archive:
        for line in archive.read(RUNS).splitlines():
            run = json.loads(line)["run"]
            if run["state"] == "done" and run["kind"] != "capacity":
                groups[run["prime"]].append(run)
    shares, errors = [], ([], [])
    for _, runs in sorted(groups.items()):
        cell = RecordedCell(runs)
        chosen = cell.chosen(precision)
        shares.append(len(chosen) / len(runs))
        whole, part = estimate(cell, list(cell.runs.values())), estimate(cell, chosen)
        for found, full, own in zip(errors, whole, part, strict=True):
            if full.at is not None and own.at is not None:
                found.append((own.at - full.at) / DEX)
    return {
        "cells": len(shares),
        "runs asked for, median % of the recorded": 100 * float(np.median(shares)),
        "cells with both crossings": len(errors[0]),
        "RMS difference crossing, dex": float(np.sqrt(np.mean(np.square(errors[0])))),
        "largest |difference| crossing, dex": float(np.max(np.abs(errors[0]))),
        "cells with both onsets": len(errors[1]),
        "RMS difference onset, dex": float(np.sqrt(np.mean(np.square(errors[1])))),
        "largest |difference| onset, dex": float(np.max(np.abs(errors[1]))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=int, default=300)
    parser.add_argument("--precision", type=float, default=0.03)
    parser.add_argument("--quick", action="store_true", help="30 cells")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--replay", action="store_true", help="choose among recorded runs")
    options = parser.parse_args()
    count = 30 if options.quick else options.cells
    if options.replay:
        table = {suite: replayed(suite, options.precision) for suite in NOISE.values()}
    else:
        table = {}
        for noise, suite in NOISE.items():
            recorded = read(suite)
            found = simulated(recorded, ONSET_SCALE[noise], 0, count, options.precision)
            table |= {f"{noise} noise, {name}": row for name, row in found.items()}
        for name, (curves, noise) in HELD_OUT.items():
            recorded = Recorded(read(curves).shapes, read(noise).residuals)
            found = simulated(recorded, HELD_OUT_SCALE, HELD_OUT_SEED, count, options.precision)
            table |= {f"{name}, {design}": row for design, row in found.items()}
    if options.json:
        print(json.dumps(table))
        return
    names = list(next(iter(table.values())))
    print("| | " + " | ".join(table) + " |")
    print("|---" * (len(table) + 1) + "|")
    for name in names:
        cells = " | ".join(f"{column[name]:.3g}" for column in table.values())
        print(f"| {name} | {cells} |")
    if options.replay:
        return
    print(
        f"\nThe paper's grid: {PAPER_SEEDS * (len(PAPER_SPEED) + len(PAPER_GROK)):,} runs a cell."
    )


if __name__ == "__main__":
    main()
