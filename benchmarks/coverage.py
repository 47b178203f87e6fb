"""Does the 95 % interval of P_cross cover, and what does censoring do to either estimator?

Synthetic cells with a known crossing. T_mem has the measured shape b (1 − f/f_c)^−γ, steep and
convex, and T_gen falls slowly; first passages are log-normal around both, half of the noise
variance shared by a seed over all widths (the paired design), rounded to epochs and censored at a
cap. Prints Markdown tables of coverage by world and by grid of widths and of bias, or JSON.

    python benchmarks/coverage.py [--trials 1000] [--json]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, stats

from groktime.service.analysis.crossing import crossing
from groktime.service.analysis.inputs import FirstPassages

W15 = (20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 200, 256)
GRIDS = {
    "step 4, then 8 (central)": (*range(20, 132, 4), *range(136, 260, 8)),
    "15 widths (most suites)": W15,
    "8 widths (two cores)": (20, 28, 40, 56, 80, 112, 160, 256),
    "5 widths": (20, 40, 80, 160, 256),
}
CRITICAL, GAMMA = 0.42, 3.7  # f_c and γ as fitted to the ten primes
N_RESAMPLES = 2000


@dataclass(frozen=True)
class World:
    """How cells are drawn; noise is the standard deviation of log T over seeds."""

    name: str
    mem_noise: float = 0.08  # in the middle of what was measured beside the crossings
    gen_noise: float = 0.15
    shared: float = 0.5
    tail: float | None = None  # degrees of freedom of t noise instead of normal
    cap: float = 5000.0
    epochs: float = 250.0  # both speeds at the crossing
    fraction: float = 0.2  # f at the crossing: T_mem falls there as P^−3.4
    gen_slope: float = 0.4
    widths: tuple[int, ...] = W15
    stuck: float = 0.0  # share of generalisation runs that never arrive

    def t_mem(self, params: np.ndarray, truth: float) -> np.ndarray:
        """Infinite where the network is too small to memorise at all."""
        left = np.maximum(1 - self.fraction * truth / params / CRITICAL, 0.0)
        with np.errstate(divide="ignore"):
            return self.epochs * (left / (1 - self.fraction / CRITICAL)) ** -GAMMA

    def t_gen(self, params: np.ndarray, truth: float) -> np.ndarray:
        return self.epochs * (params / truth) ** -self.gen_slope

    def median_crossing(self, truth: float) -> float:
        """Where the medians over all seeds cross, stuck ones included.

        Stuck runs push the median of T_gen to the 0.5/(1 − stuck) quantile of the others, so
        the curves meet that much earlier.
        """
        late = self.gen_noise * stats.norm.ppf(0.5 / (1 - self.stuck))

        def ahead(log_params: float) -> float:
            at = np.array([np.exp(log_params)])
            mem, gen = self.t_mem(at, truth), self.t_gen(at, truth)
            return float(np.log(mem[0] / gen[0]) - late)

        smallest = np.log(truth * self.fraction / CRITICAL * 1.001)
        return float(np.exp(optimize.brentq(ahead, smallest, np.log(truth) + 1.0)))


WORLDS = (
    World("as measured"),
    World("shallow: T_mem falls as P^−1.7", fraction=0.13),
    World("steep: T_mem falls as P^−5.6", fraction=0.255),
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


def params_of(widths: tuple[int, ...]) -> np.ndarray:
    """P at p = 113, two layers."""
    d = np.array(widths)
    return 2 * 115 * d + 2 * (16 * d**2 + 2 * d) + d


def draw(
    world: World, truth: float, seeds: int, rng: np.random.Generator
) -> tuple[FirstPassages, FirstPassages]:
    """One cell's speed runs and generalisation passages, crossing at `truth` parameters."""
    params = params_of(world.widths)
    return (
        _passages(world, world.t_mem(params, truth), world.mem_noise, 0.0, seeds, rng),
        _passages(world, world.t_gen(params, truth), world.gen_noise, world.stuck, seeds, rng),
    )


def _passages(
    world: World,
    centre: np.ndarray,
    noise: float,
    stuck: float,
    seeds: int,
    rng: np.random.Generator,
) -> FirstPassages:
    width = np.repeat(world.widths, seeds)
    params = np.repeat(params_of(world.widths), seeds)
    seed = np.tile(np.arange(seeds), len(world.widths))

    def unit(n: int) -> np.ndarray:
        return rng.normal(size=n) if world.tail is None else rng.standard_t(world.tail, size=n)

    spread = np.sqrt(world.shared) * unit(seeds)[seed]
    spread = spread + np.sqrt(1 - world.shared) * unit(len(seed))
    time = np.maximum(1.0, np.round(np.repeat(centre, seeds) * np.exp(noise * spread)))
    time[rng.random(len(time)) < stuck] = np.inf
    reached = time <= world.cap
    return FirstPassages(
        width, params, seed, np.where(reached, time, np.nan), np.minimum(time, world.cap)
    )


def truths(trials: int, rng: np.random.Generator) -> np.ndarray:
    """Crossings anywhere between two widths: log10 P uniform over several spacings."""
    return 10 ** rng.uniform(5.0, 5.5, size=trials)


def coverage(world: World, seeds: int, trials: int, seed: int = 1) -> dict[str, object]:
    """How often the interval holds the truth, over all cells and over those not called coarse."""
    rng = np.random.default_rng(seed)
    hits, fine_hits, fine, widths, open_ended = 0, 0, 0, [], 0
    for trial, truth in enumerate(truths(trials, rng)):
        found = crossing(*draw(world, truth, seeds, rng), n_resamples=N_RESAMPLES, seed=trial)
        if found.p_cross.level is None:
            continue
        low, high = found.p_cross.low, found.p_cross.high
        hit = (low or 0.0) <= truth <= (high or np.inf)
        hits += hit
        if found.bracket is None or not found.bracket.coarse:
            fine, fine_hits = fine + 1, fine_hits + hit
        if low is None or high is None:
            open_ended += 1
        else:
            widths.append(np.log10(high / low))
    share = fine_hits / fine if fine else None
    return {
        "world": world.name,
        "seeds": seeds,
        "trials": trials,
        "coverage": hits / trials,
        "not_coarse": fine / trials,
        "coverage_not_coarse": share,
        "standard_error": float(np.sqrt(share * (1 - share) / fine)) if share is not None else None,
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
            estimate = found.p_cross.estimate
            if estimate is not None and found.status != "bracketed":
                errors[name].append(float(np.log10(estimate / truth)))
        bracketed += robust.status == "bracketed"
        nothing += robust.p_cross.estimate is None
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
    parser.add_argument(
        "--part", choices=["coverage", "grids", "bias"], help="only one of the tables"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    answer: dict[str, list[dict[str, object]]] = {}
    if options.part in (None, "coverage"):
        answer["coverage"] = [
            coverage(world, seeds, options.trials)
            for world in WORLDS[: options.worlds]
            for seeds in options.seeds
        ]
    if options.part in (None, "grids"):
        answer["grids"] = [
            coverage(
                replace(WORLDS[0], name=name, widths=widths), max(options.seeds), options.trials
            )
            for name, widths in GRIDS.items()
        ]
    if options.part in (None, "bias"):
        most = max(options.seeds)
        answer["bias"] = [bias(world, most, options.trials) for world in CENSORED]
    if options.json:
        print(json.dumps(answer))
        return
    print("\n\n".join(table(rows) for rows in answer.values()))


if __name__ == "__main__":
    main()
