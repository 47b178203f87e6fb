"""How fast the analysis answers, beside a plain loop that computes the same.

    python benchmarks/analysis.py [--quick] [--json]

The loop runs a few of the resamples and is scaled up to all of them; both sides are timed in
this process, one thread, so their ratio means something on any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy starts its pool

import numpy as np
import pandas as pd
from scipy import stats

from groktime.service.analysis.capacity import capacity
from groktime.service.analysis.crossing import crossing
from groktime.service.analysis.delay import onset
from groktime.service.analysis.hypotheses import hypothesis_tests
from groktime.service.analysis.inputs import CapacityRuns, FirstPassages, GrokRuns
from groktime.service.analysis.survival import KaplanMeier, censoring_times, speeds

WIDTHS = np.array([*range(20, 129, 4), *range(136, 257, 8)])  # the central suite's 44
SEEDS = np.arange(42, 52)
PRIMES = np.array([97, 107, 113, 127, 139, 149])
DECAYS = np.array([0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
CROSSING_BUDGET_MS = 100.0
TESTS_BUDGET_MS = 1000.0


def central_cell(rng: np.random.Generator) -> tuple[FirstPassages, GrokRuns]:
    """44 widths × 10 seeds: speeds that cross near 150k parameters, some runs censored."""
    width, seed = np.repeat(WIDTHS, len(SEEDS)), np.tile(SEEDS, len(WIDTHS))
    params = 2 * 115 * width + 2 * (16 * width**2 + 2 * width) + width

    def passages(slope: float, noise: float, cap: float) -> tuple[np.ndarray, np.ndarray]:
        t = np.round(250 * (params / 1.5e5) ** -slope * np.exp(noise * rng.normal(size=len(seed))))
        return np.where(t <= cap, t, np.nan), np.minimum(t, cap)

    mem, mem_last = passages(1.0, 0.05, 1500.0)
    gen, gen_last = passages(0.4, 0.15, 600.0)
    e_train = np.round(
        gen_last * (params / 1e5) ** -0.2 * np.exp(0.05 * rng.normal(size=len(seed)))
    )
    last = np.maximum(gen_last, e_train)
    return (
        FirstPassages(width, params, seed, mem, mem_last),
        GrokRuns(width, params, seed, e_train, gen, gen, last),
    )


def capacity_runs() -> CapacityRuns:
    n = np.array([1000, 1374, 1891, 2601, 3576, 4917, 6761, 9300])
    width = np.repeat(np.arange(10, 23, 2), len(n))
    sizes = np.tile(n, 7)
    params = 2 * 115 * width + 2 * (16 * width**2 + 2 * width) + width
    bits = np.minimum(0.95 * sizes * np.log2(115), 2.16 * params)
    return CapacityRuns(width, params, sizes, bits, 115)


def sweep_cells(rng: np.random.Generator) -> pd.DataFrame:
    """A weight-decay suite's 42 cells."""
    decay, prime = (a.ravel() for a in np.meshgrid(DECAYS, PRIMES, indexing="ij"))
    cross = 5.2 + 2.1 * np.log10(prime / 97) + 0.05 * rng.normal(size=len(prime))
    onset_log = cross - 0.4 + 0.3 * decay + 0.05 * rng.normal(size=len(prime))
    bits = prime * (prime - 1) // 2 * np.log2(prime + 2)
    return pd.DataFrame(
        {
            "p": prime,
            "p_cross": 10**cross,
            "p_onset": 10**onset_log,
            "k_mem": bits,
            "weight_decay": decay,
        }
    )


def whole_crossing(mem: FirstPassages, grok: GrokRuns, runs: CapacityRuns, resamples: int) -> None:
    """What one /crossing computes: both curves, crossing with interval, onset, C_model."""
    gen = grok.generalisation()
    crossing(mem, gen, n_resamples=resamples)
    onset(grok)
    speeds(mem, p_mem=1.0)
    speeds(gen, p_mem=1.0)
    capacity(runs, n_resamples=resamples)


def loop_crossing(mem: FirstPassages, gen: FirstPassages, resamples: int) -> list[float]:
    """The same bootstrap, one resample, one width and one seed at a time."""
    rng = np.random.default_rng(0)
    roots = []
    for _ in range(resamples):
        drawn = rng.choice(SEEDS, size=len(SEEDS))
        params, mem_median = _loop_medians(mem, drawn)
        _, gen_median = _loop_medians(gen, drawn)
        with np.errstate(invalid="ignore"):
            gap = np.log(mem_median) - np.log(gen_median)
        for k in range(1, len(gap)):
            if gap[k - 1] > 0 >= gap[k] and np.all(np.isfinite(gap[k - 1 : k + 1])):
                share = gap[k - 1] / (gap[k - 1] - gap[k])
                roots.append(np.log(params[k - 1]) * (1 - share) + np.log(params[k]) * share)
                break
    return roots


def _loop_medians(runs: FirstPassages, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    times, events = censoring_times(runs), ~np.isnan(runs.epoch)
    params, medians = [], []
    for width in WIDTHS:
        here = np.flatnonzero(runs.width == width)
        at = np.concatenate([here[runs.seed[here] == s] for s in drawn])
        params.append(runs.params[here[0]])
        medians.append(KaplanMeier.of(times[at], events[at]).median())
    return np.array(params), np.array(medians)


def loop_tests(cells: pd.DataFrame, resamples: int) -> None:
    """The Monte-Carlo part of the suite, one shuffle and one resample at a time."""
    rng = np.random.default_rng(0)
    x, y = np.log10(cells["p_cross"].to_numpy()), np.log10(cells["p_onset"].to_numpy())
    for _ in range(resamples):
        stats.spearmanr(x, rng.permutation(y))
        at = rng.integers(0, len(x), len(x))
        a, b = x[at], y[at]
        cov = np.mean(a * b) - a.mean() * b.mean()
        _ = 2 * cov / (a.var() + b.var() + (a.mean() - b.mean()) ** 2)


@dataclass(frozen=True)
class Cost:
    """Fastest of several repeats, milliseconds: on the clock, and of processor time.

    On a machine that does other things too, only the second says what the code costs.
    """

    clock: float
    processor: float


def cost(work: Callable[[], object], repeats: int) -> Cost:
    taken = []
    for _ in range(repeats):
        clock, processor = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - clock, time.process_time() - processor))
    return Cost(1000 * min(t[0] for t in taken), 1000 * min(t[1] for t in taken))


def measure(quick: bool) -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    mem, grok = central_cell(rng)
    gen, runs, cells = grok.generalisation(), capacity_runs(), sweep_cells(rng)
    resamples = 10_000
    sample = 3 if quick else 50
    repeats = 2 if quick else 15
    whole = cost(lambda: whole_crossing(mem, grok, runs, resamples), repeats)
    alone = cost(lambda: crossing(mem, gen, n_resamples=resamples), repeats)
    tests = cost(
        lambda: hypothesis_tests(cells, ["weight_decay", "p"], n_resamples=resamples), repeats
    )
    loop = cost(lambda: loop_crossing(mem, gen, sample), 1)
    slow_crossing = loop.processor * resamples / sample
    loop = cost(lambda: loop_tests(cells, 10 * sample), 1)
    slow_tests = loop.processor * resamples / (10 * sample)
    return [
        _row("everything behind /crossing, 44 × 10", whole, None, CROSSING_BUDGET_MS),
        _row("crossing with its interval alone", alone, slow_crossing, CROSSING_BUDGET_MS),
        _row("whole test suite, 42 cells", tests, slow_tests, TESTS_BUDGET_MS),
    ]


def _row(name: str, fast: Cost, slow: float | None, budget: float) -> dict[str, object]:
    return {
        "what": name,
        "ms": round(fast.clock, 1),
        "cpu_ms": round(fast.processor, 1),
        "budget_ms": budget,
        "loop_cpu_ms": None if slow is None else round(slow),
        "times_faster": None if slow is None else round(slow / fast.processor),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats, a rougher loop")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.quick)
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'10,000 resamples':38}{'ms':>8}{'cpu ms':>8}{'budget':>8}{'loop ms':>9}{'ratio':>7}")
    for row in rows:
        loop, ratio = row["loop_cpu_ms"] or "–", row["times_faster"] or "–"
        print(
            f"{row['what']:38}{row['ms']:>8}{row['cpu_ms']:>8}{row['budget_ms']:>8}"
            f"{loop:>9}{ratio:>7}"
        )


if __name__ == "__main__":
    main()
