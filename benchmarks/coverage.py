"""Does the 95 % interval of P_cross cover, and what does censoring do to either estimator?

Synthetic cells of fifteen widths with a known crossing: log-normal first passages around two
power laws, half of the noise variance shared by a seed over all widths (the paired design),
rounded to epochs and censored at a cap. Prints two Markdown tables, or JSON.

    python benchmarks/coverage.py [--trials 1000] [--json]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from service.analysis.crossing import crossing
from service.analysis.inputs import FirstPassages

W15 = np.array([20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 200, 256])
PARAMS = 2 * 115 * W15 + 2 * (16 * W15**2 + 2 * W15) + W15  # p = 113, two layers
N_RESAMPLES = 2000


@dataclass(frozen=True)
class World:
    """How cells are drawn; noise is the standard deviation of log T over seeds."""

    name: str
    mem_noise: float = 0.04  # as measured at p = 47
    gen_noise: float = 0.15
    shared: float = 0.5
    tail: float | None = None  # degrees of freedom of t noise instead of normal
    cap: float = 5000.0
    epochs: float = 250.0  # both speeds at the crossing
    mem_slope: float = 1.0
    gen_slope: float = 0.4
    stuck: float = 0.0  # share of generalisation runs that never arrive

    def median_crossing(self, crossing: float) -> float:
        """Where the medians over all seeds cross, stuck ones included.

        Stuck runs push the median of T_gen to the 0.5/(1 − stuck) quantile of the others, so
        the curves of slopes −m and −g meet that much earlier.
        """
        late = self.gen_noise * stats.norm.ppf(0.5 / (1 - self.stuck))
        return float(crossing * np.exp(-late / (self.mem_slope - self.gen_slope)))


WORLDS = (
    World("as measured"),
    World("no shared noise", shared=0.0),
    World("nearly all noise shared", shared=0.9),
    World("twice the noise", mem_noise=0.08, gen_noise=0.3),
    World("heavy tails (t, 3 df)", tail=3.0),
    World("cap just above the crossing", cap=300.0),
)
NOISY = World("nothing censored near the crossing", mem_noise=0.15, gen_noise=0.25)
CENSORED = (
    NOISY,
    replace(NOISY, name="cap at 1.6 × the crossing's epochs", cap=400.0),
    replace(NOISY, name="cap at 1.2 × the crossing's epochs", cap=300.0),
    replace(NOISY, name="10 % of grok runs never generalise", stuck=0.1),
    replace(NOISY, name="20 % of grok runs never generalise", stuck=0.2),
    replace(NOISY, name="30 % of grok runs never generalise", stuck=0.3),
    replace(NOISY, name="40 % of grok runs never generalise", stuck=0.4),
)


def draw(
    world: World, truth: float, seeds: int, rng: np.random.Generator
) -> tuple[FirstPassages, FirstPassages]:
    """One cell's speed runs and generalisation passages, crossing at `truth` parameters."""
    return (
        _passages(world, truth, world.mem_slope, world.mem_noise, 0.0, seeds, rng),
        _passages(world, truth, world.gen_slope, world.gen_noise, world.stuck, seeds, rng),
    )


def _passages(
    world: World,
    truth: float,
    slope: float,
    noise: float,
    stuck: float,
    seeds: int,
    rng: np.random.Generator,
) -> FirstPassages:
    width, params = np.repeat(W15, seeds), np.repeat(PARAMS, seeds)
    seed = np.tile(np.arange(seeds), len(W15))

    def unit(n: int) -> np.ndarray:
        return rng.normal(size=n) if world.tail is None else rng.standard_t(world.tail, size=n)

    spread = np.sqrt(world.shared) * unit(seeds)[seed]
    spread = spread + np.sqrt(1 - world.shared) * unit(len(seed))
    time = world.epochs * (params / truth) ** -slope * np.exp(noise * spread)
    time = np.maximum(1.0, np.round(time))
    time[rng.random(len(time)) < stuck] = np.inf
    reached = time <= world.cap
    return FirstPassages(
        width, params, seed, np.where(reached, time, np.nan), np.minimum(time, world.cap)
    )


def truths(trials: int, rng: np.random.Generator) -> np.ndarray:
    """Crossings anywhere between two widths: log10 P uniform over several spacings."""
    return 10 ** rng.uniform(5.0, 5.5, size=trials)


def coverage(world: World, seeds: int, trials: int, seed: int = 1) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    hits, widths, open_ended = 0, [], 0
    for trial, truth in enumerate(truths(trials, rng)):
        found = crossing(*draw(world, truth, seeds, rng), n_resamples=N_RESAMPLES, seed=trial)
        interval = found.interval
        assert interval is not None
        hits += interval.low <= truth <= interval.high
        closed = interval.low > 0 and np.isfinite(interval.high)
        open_ended += not closed
        if closed:
            widths.append(np.log10(interval.high / interval.low))
    share = hits / trials
    return {
        "world": world.name,
        "seeds": seeds,
        "trials": trials,
        "coverage": share,
        "standard_error": float(np.sqrt(share * (1 - share) / trials)),
        "median_width_dex": float(np.median(widths)) if widths else None,
        "open_ended": open_ended / trials,
    }


def bias(world: World, seeds: int, trials: int, seed: int = 2) -> dict[str, object]:
    """Errors log10(estimate / truth) of both estimators, where each gives a point."""
    rng = np.random.default_rng(seed)
    errors: dict[str, list[float]] = {"paper": [], "robust": []}
    censored, bracketed, nothing = [], 0, 0
    for crossing_drawn in truths(trials, rng):
        truth = world.median_crossing(crossing_drawn)
        mem, gen = draw(world, crossing_drawn, seeds, rng)
        for runs in (mem, gen):
            near = np.abs(np.log10(runs.params / truth)) < 0.2
            censored.append(np.isnan(runs.epoch[near]).mean())
        paper = crossing(mem, gen, method="paper")
        robust = crossing(mem, gen, n_resamples=0)
        for name, found in (("paper", paper), ("robust", robust)):
            if found.params is not None and found.status != "bracketed":
                errors[name].append(float(np.log10(found.params / truth)))
        bracketed += robust.status == "bracketed"
        nothing += robust.params is None
    return {
        "world": world.name,
        "seeds": seeds,
        "trials": trials,
        "censored_near_crossing": float(np.mean(censored)),
        "paper_bias": _mean(errors["paper"]),
        "paper_rmse": _rms(errors["paper"]),
        "robust_bias": _mean(errors["robust"]),
        "robust_rmse": _rms(errors["robust"]),
        "robust_bracketed": bracketed / trials,
        "robust_no_crossing": nothing / trials,
    }


def _mean(errors: list[float]) -> float | None:
    return float(np.mean(errors)) if errors else None


def _rms(errors: list[float]) -> float | None:
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else None


def table(rows: list[dict[str, object]]) -> str:
    def cell(value: object) -> str:
        if value is None:
            return "–"
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    names = list(rows[0])
    lines = ["| " + " | ".join(n.replace("_", " ") for n in names) + " |"]
    lines.append("|" + "---|" * len(names))
    lines += ["| " + " | ".join(cell(r[n]) for n in names) + " |" for r in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5, 10])
    parser.add_argument("--worlds", type=int, default=len(WORLDS), help="only the first so many")
    parser.add_argument("--part", choices=["coverage", "bias"], help="only one of the tables")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    answer: dict[str, list[dict[str, object]]] = {}
    if options.part != "bias":
        answer["coverage"] = [
            coverage(world, seeds, options.trials)
            for world in WORLDS[: options.worlds]
            for seeds in options.seeds
        ]
    if options.part != "coverage":
        most = max(options.seeds)
        answer["bias"] = [bias(world, most, options.trials) for world in CENSORED]
    if options.json:
        print(json.dumps(answer))
        return
    print("\n\n".join(table(rows) for rows in answer.values()))


if __name__ == "__main__":
    main()
