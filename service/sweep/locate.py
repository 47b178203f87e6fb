"""Locating a cell: which run to train next to place its crossing and its onset.

The model here only chooses. What is reported are the estimators of service/analysis on the runs
trained, so a choice is judged by what it does to their variance: below the precision asked for,
the search ends. All sizes are natural logarithms of the parameter count P unless they say dex.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

LocatedKind = Literal["speed", "grok"]
LOCATED_KINDS: tuple[LocatedKind, ...] = ("speed", "grok")
Wanted = Literal["crossing", "onset"]
Status = Literal["searching", "placed", "no crossing in range", "no onset in range", "out of seeds"]

DEX = math.log(10)
SCAN = 0.12 * DEX  # between the widths of the first look
NARROW = 0.07 * DEX  # a bracket this narrow is interpolated without harm
CURVATURE = 0.08  # of the bracket: what interpolation may be off by (one standard deviation)
LEAST_WEIGHT = 0.3  # of a side in the interpolation, for its seeds to be asked for by rule
LEAST_SEEDS = 2  # at each side of the crossing, for a noise that is seen and not assumed
MEDIAN_INEFFICIENCY = (1.0, 1.0, 1.35, 1.19, 1.43)  # n · Var(median) / σ², normal, n = 1, 2, …
# Half of a 95 % interval in standard deviations of the model, calibrated for adaptive choice by
# benchmarks/locate.py.
CROSSING_FACTOR, ONSET_FACTOR = 1.9, 2.0
ONSET_PRECISION = 1.05  # of the precision asked for: yes and no teach less than an epoch does
SIGN_ONLY = 3.0  # a speed run this many times past T_gen is slower, whatever its T_mem
AHEAD = 2  # onset runs asked for at once; more would be chosen half blind
LAPSE = 0.01  # of a delay seen against the odds, such as a censored run


@dataclass(frozen=True)
class Finding:
    """One trained run of the cell: its first passage, T_mem or T_gen, or where it was censored."""

    kind: LocatedKind
    width: int
    seed: int
    epoch: float | None  # None: not reached
    last_epoch: float
    delayed: bool | None = None  # grok runs: ΔE > 0; None where training never got there


@dataclass(frozen=True)
class Choice:
    """A run worth training next, and why."""

    kind: LocatedKind
    width: int
    seed: int
    why: str


@dataclass(frozen=True)
class Noise:
    """Spread over seeds of ln T_mem and ln T_gen; `weight` counts as that many runs seen."""

    mem: float = 0.12
    gen: float = 0.18
    weight: float = 4.0


@dataclass(frozen=True)
class Prior:
    """Where the points lie as multiples of K_mem, before any run of the cell.

    The defaults are those of the recorded primes; finished cells of a suite sharpen them.
    """

    crossing: float = math.log(4.6)
    onset: float = math.log(2.6)
    spread: float = 0.35  # of the onset's place, ln P
    scale: float = 0.09  # of the onset's logistic, ln P
    noise: Noise = field(default_factory=Noise)


@dataclass(frozen=True)
class Grid:
    """What may be trained in one cell: even widths with their sizes, seeds, and what runs cost."""

    params: Mapping[int, int]
    seeds: Sequence[int]
    seconds: Callable[[LocatedKind, int], float]
    k_mem: float

    def log_params(self, width: int) -> float:
        return math.log(self.params[width])

    def nearest(self, log_params: float, among: Collection[int] | None = None) -> int:
        """The permitted width whose size is nearest."""
        return min(among or self.params, key=lambda w: (abs(self.log_params(w) - log_params), w))


@dataclass(frozen=True)
class Point:
    """A point of the cell as far as it is known: P, half-width of its interval, its bracket."""

    status: Status
    params: float | None = None
    half_width: float | None = None  # dex, of the 95 % interval
    bracket: tuple[float, float] | None = None  # P of the widths on both sides


@dataclass(frozen=True)
class Progress:
    """How far a cell is located, and the runs worth training next, best first."""

    crossing: Point | None
    onset: Point | None
    choices: tuple[Choice, ...]

    @property
    def is_done(self) -> bool:
        return not self.choices


def locate(
    grid: Grid,
    findings: Sequence[Finding],
    *,
    precision: float = 0.03,
    wanted: Collection[Wanted] = ("crossing", "onset"),
    prior: Prior | None = None,
    in_flight: Collection[tuple[LocatedKind, int, int]] = (),
) -> Progress:
    """What is known of the cell and which runs to train next.

    `precision` is the standard deviation asked for, in dex. Runs in flight are not asked for again
    and count as if they were done.
    """
    prior = prior or Prior()
    search = _Search(grid, findings, precision * DEX, prior, frozenset(in_flight))
    crossing = search.crossing() if "crossing" in wanted else None
    onset = search.onset() if "onset" in wanted else None
    return Progress(crossing, onset, tuple(search.choices))


def sign_is_known(t_gen: float, epoch: float) -> bool:
    """Whether a speed run that has not memorised by this epoch can only be the slower one."""
    return epoch > SIGN_ONLY * t_gen


class _Search:
    """One look at one cell; `choices` are collected in the order they were found worth it."""

    def __init__(
        self,
        grid: Grid,
        findings: Sequence[Finding],
        precision: float,
        prior: Prior,
        in_flight: frozenset[tuple[LocatedKind, int, int]],
    ) -> None:
        self.grid, self.findings, self.precision = grid, findings, precision
        self.prior, self.in_flight = prior, in_flight
        self.choices: list[Choice] = []
        self.noise = pooled_noise(findings, prior.noise)

    # The crossing.

    def crossing(self) -> Point:
        """Scan, bisect, then seeds; each step asks for what it lacks and waits for it."""
        differences = self._differences()
        measured = [w for w in sorted(differences) if not math.isnan(differences[w])]
        slower = [w for w in measured if differences[w] > 0]
        faster = [w for w in measured if differences[w] < 0]
        if not measured:
            return self._begin(sorted(differences))
        bracket = _bracket(measured, differences)
        if bracket is None:
            return self._widen(slower, faster, sorted(differences))
        low, high = bracket
        gap = self.grid.log_params(high) - self.grid.log_params(low)
        root, slope = self._root(low, high, differences)
        between = [w for w in self.grid.params if low < w < high]
        sides = (float(self.grid.params[low]), float(self.grid.params[high]))
        if gap > NARROW and between:
            # Towards the root, but never so near an end that the other side stays wide.
            inner = min(
                max(root, self.grid.log_params(low) + gap / 4), self.grid.log_params(high) - gap / 4
            )
            self._ask_pair(self.grid.nearest(inner, between), "halves the bracket")
            return Point("searching", math.exp(root), None, sides)
        self._confirm(low, high, measured)
        counts = self._counts((low, high))
        spread = self._spread(low, high, root, slope, gap, counts)
        point = Point("placed", math.exp(root), CROSSING_FACTOR * spread / DEX, sides)
        if self._seeds_until_precise(low, high, root, slope, gap, counts) or self.choices:
            return Point("searching", point.params, point.half_width, sides)
        if spread > self.precision:
            return Point("out of seeds", point.params, point.half_width, sides)
        return point

    def _begin(self, asked: Sequence[int]) -> Point:
        """The first look: where K_mem says the crossing is, then a step to both sides."""
        centre = math.log(self.grid.k_mem) + self.prior.crossing
        for offset in (0.0, SCAN, -SCAN):
            self._ask_pair(self.grid.nearest(centre + offset), "first look around the prior")
        return Point("searching")

    def _widen(self, slower: Sequence[int], faster: Sequence[int], asked: Sequence[int]) -> Point:
        """All widths agree: go on to where the other sign should be, to the end of the range."""
        widths = sorted(self.grid.params)
        if faster:
            edge, step, end = min(asked), -SCAN, widths[0]
            why = "memorising is faster at every width so far"
        else:
            edge, step, end = max(asked), SCAN, widths[-1]
            why = "memorising is slower at every width so far"
        if edge == end:
            for seed in self.grid.seeds[:LEAST_SEEDS]:
                for kind in LOCATED_KINDS:
                    self._ask(kind, end, seed, "decides the end of the range")
            return Point("searching" if self.choices else "no crossing in range")
        beyond = [w for w in widths if (w < edge if faster else w > edge)]
        self._ask_pair(self.grid.nearest(self.grid.log_params(edge) + step, beyond), why)
        return Point("searching")

    def _confirm(self, low: int, high: int, measured: Sequence[int]) -> None:
        """One width beyond each side must agree: two roots in one bracket look like none."""
        for side, step, beyond in (
            (low, -SCAN, [w for w in self.grid.params if w < low]),
            (high, SCAN, [w for w in self.grid.params if w > high]),
        ):
            if beyond and not any(w in beyond for w in measured):
                target = self.grid.log_params(side) + step
                self._ask_pair(self.grid.nearest(target, beyond), "confirms the sign beyond")

    def _seeds_until_precise(
        self,
        low: int,
        high: int,
        root: float,
        slope: float,
        gap: float,
        counts: dict[tuple[LocatedKind, int], int],
    ) -> bool:
        """Ask for the seed that lowers the variance most per second, again and again."""
        asked = False
        pending = dict(counts)
        share = (root - self.grid.log_params(low)) / gap if gap else 0.5
        weights = {low: 1 - share, high: share}
        for _ in range(8 * len(self.grid.seeds)):
            short = [
                (kind, width)
                for (kind, width), count in pending.items()
                if weights[width] > LEAST_WEIGHT
                and count < LEAST_SEEDS + self._doubtful(kind, width)
            ]
            spread = self._spread(low, high, root, slope, gap, pending)
            if not short and spread <= self.precision:
                break
            gains: list[tuple[float, LocatedKind, int]] = []
            for kind, width in short or pending:
                if pending[kind, width] >= len(self.grid.seeds):
                    continue
                more = {**pending, (kind, width): pending[kind, width] + 1}
                gain = spread**2 - self._spread(low, high, root, slope, gap, more) ** 2
                gains.append((gain / self.grid.seconds(kind, width), kind, width))
            if not gains:
                break
            _, kind, width = max(gains)
            seed = self.grid.seeds[pending[kind, width]]
            self._ask(kind, width, seed, "another seed beside the crossing")
            pending[kind, width] += 1
            asked = True
        return asked

    def _spread(
        self,
        low: int,
        high: int,
        root: float,
        slope: float,
        gap: float,
        counts: Mapping[tuple[LocatedKind, int], int],
    ) -> float:
        """Standard deviation of the interpolated root: delta method with pooled seed noise."""
        share = (root - self.grid.log_params(low)) / gap if gap else 0.5
        variance = 0.0
        for width, weight in ((low, 1 - share), (high, share)):
            for kind, sigma in self._sigmas():
                n = max(1, counts.get((kind, width), 1))
                factor = MEDIAN_INEFFICIENCY[min(n, len(MEDIAN_INEFFICIENCY)) - 1]
                variance += weight**2 * sigma**2 * factor / n
        return math.sqrt(variance / slope**2 + (CURVATURE * gap) ** 2)

    def _sigmas(self) -> tuple[tuple[LocatedKind, float], ...]:
        return ("speed", self.noise.mem), ("grok", self.noise.gen)

    def _root(self, low: int, high: int, differences: Mapping[int, float]) -> tuple[float, float]:
        """Root of ln T_mem − ln T_gen between two widths, and the slope there.

        A side whose T_mem was not reached has a known sign only; its size is then taken from the
        cap, which makes the slope too flat and the interval too wide, never too narrow.
        """
        x0, x1 = self.grid.log_params(low), self.grid.log_params(high)
        y0 = min(differences[low], 3.0)
        y1 = max(differences[high], -3.0)
        slope = min(max((y1 - y0) / (x1 - x0), self._local_slope(differences, x0, x1)), -0.5)
        return x0 + (x1 - x0) * y0 / (y0 - y1), slope

    def _local_slope(self, differences: Mapping[int, float], x0: float, x1: float) -> float:
        """Slope over all widths near the bracket: two noisy neighbours make any slope steep."""
        near = [
            (self.grid.log_params(w), min(max(y, -3.0), 3.0))
            for w, y in differences.items()
            if not math.isnan(y) and x0 - 2 * SCAN < self.grid.log_params(w) < x1 + 2 * SCAN
        ]
        if len(near) < 3:
            return -math.inf
        x, y = np.array(near).T
        return float(np.polyfit(x, y, 1)[0])

    def _doubtful(self, kind: LocatedKind, width: int) -> bool:
        """Whether two seeds disagree by more than noise would, so that a third must decide."""
        times = [
            math.log(f.epoch)
            for f in self.findings
            if f.kind == kind and f.width == width and f.epoch is not None
        ]
        sigma = self.prior.noise.mem if kind == "speed" else self.prior.noise.gen
        others = [
            math.log(f.epoch)
            for f in self.findings
            if f.kind == kind
            and f.epoch is not None
            and kind == "grok"
            and abs(self.grid.log_params(f.width) - self.grid.log_params(width)) < 3 * SCAN
        ]
        apart = len(times) > 1 and max(times) - min(times) > 3 * sigma
        # T_gen is nearly flat: far from its neighbours' median is far from its own.
        alone = (
            bool(times)
            and len(others) > 3
            and (abs(float(np.median(times)) - float(np.median(others))) > 3 * sigma)
        )
        return apart or alone

    def _differences(self) -> dict[int, float]:
        """ln T_mem − ln T_gen of medians by width; ±inf: only the sign, NaN: neither reached."""
        found: dict[int, float] = {}
        for width in {f.width for f in self.findings}:
            mem, gen = self._median("speed", width), self._median("grok", width)
            if mem is None or gen is None:
                continue
            if math.isinf(mem) and math.isinf(gen):
                found[width] = math.nan
            else:
                found[width] = mem - gen
        return found

    def _median(self, kind: LocatedKind, width: int) -> float | None:
        """ln of the median first passage; inf: half or more of the runs never reached it."""
        times = [
            math.inf if f.epoch is None else math.log(f.epoch)
            for f in self.findings
            if f.kind == kind and f.width == width
        ]
        if not times:
            return None
        times.sort()
        middle = len(times) // 2
        return times[middle] if len(times) % 2 else (times[middle - 1] + times[middle]) / 2

    def _counts(self, widths: Iterable[int]) -> dict[tuple[LocatedKind, int], int]:
        """Runs trained or in flight at the widths, by kind."""
        there = {(f.kind, f.width, f.seed) for f in self.findings} | self.in_flight
        kinds: tuple[LocatedKind, ...] = ("speed", "grok")
        return {
            (kind, width): sum(k == kind and w == width for k, w, _ in there)
            for width in widths
            for kind in kinds
        }

    # The onset.

    def onset(self) -> Point:
        """P50 of P(ΔE > 0): the width that lowers its posterior variance most per second."""
        posterior = _OnsetPosterior(self.grid, self.prior)
        seen = [f for f in self.findings if f.kind == "grok" and f.delayed is not None]
        for finding in seen:
            posterior.observe(self.grid.log_params(finding.width), bool(finding.delayed))
        # Training that never got there says that the network is too small to grok, if anything.
        untrained = [f for f in self.findings if f.kind == "grok" and f.delayed is None]
        for finding in untrained:
            posterior.observe(self.grid.log_params(finding.width), False)
        waiting = [(w, s) for kind, w, s in self.in_flight if kind == "grok"]
        for width, _ in waiting:
            x = self.grid.log_params(width)
            posterior.observe(x, posterior.probability(x) >= 0.5)
        widths = sorted(self.grid.params)
        sizes = {w: self.grid.log_params(w) for w in widths}
        smallest = max((f.width for f in untrained), default=0)
        delayed = [sizes[f.width] for f in seen if f.delayed]
        prompt = [sizes[f.width] for f in seen if not f.delayed]
        mean, spread = posterior.mean(), posterior.spread()
        sides = (
            math.exp(max(prompt)) if prompt else float(self.grid.params[widths[0]]),
            math.exp(min(delayed)) if delayed else float(self.grid.params[widths[-1]]),
        )
        asked, left = len(self.choices), spread
        while left > ONSET_PRECISION * self.precision and len(self.choices) - asked < AHEAD:
            choice = self._onset_choice(posterior, [w for w in widths if w > smallest])
            if choice is None:
                break
            self._ask("grok", *choice, "narrows the onset")
            x = sizes[choice[0]]
            posterior.observe(x, posterior.probability(x) >= 0.5)
            left = posterior.spread()
        point = (math.exp(mean), ONSET_FACTOR * spread / DEX, sides)
        if len(self.choices) > asked or waiting:
            return Point("searching", *point)
        if not delayed or (not prompt and min(widths) in {f.width for f in seen}):
            return Point("no onset in range", *point)
        return Point(
            "placed" if left <= ONSET_PRECISION * self.precision else "out of seeds", *point
        )

    def _onset_choice(
        self, posterior: _OnsetPosterior, widths: Sequence[int]
    ) -> tuple[int, int] | None:
        best: tuple[float, int, int] | None = None
        asked = {(c.width, c.seed) for c in self.choices if c.kind == "grok"}
        there = {(f.width, f.seed) for f in self.findings if f.kind == "grok"} | asked
        there |= {(w, s) for kind, w, s in self.in_flight if kind == "grok"}
        mean, near = posterior.mean(), max(2.5 * posterior.spread(), SCAN)
        for width in widths:
            if abs(self.grid.log_params(width) - mean) > near:
                continue  # a yes or a no that is known beforehand
            seed = next((s for s in self.grid.seeds if (width, s) not in there), None)
            if seed is None:
                continue
            gain = posterior.expected_gain(self.grid.log_params(width))
            score = gain / self.grid.seconds("grok", width)
            if best is None or score > best[0]:
                best = (score, width, seed)
        return None if best is None or best[0] <= 0 else best[1:]

    # Asking.

    def _ask_pair(self, width: int, why: str) -> None:
        """The first seed of both kinds at a width: a pair shares its split and its weights."""
        for kind in LOCATED_KINDS:
            self._ask(kind, width, self.grid.seeds[0], why)

    def _ask(self, kind: LocatedKind, width: int, seed: int, why: str) -> None:
        run = (kind, width, seed)
        trained = any((f.kind, f.width, f.seed) == run for f in self.findings)
        chosen = any((c.kind, c.width, c.seed) == run for c in self.choices)
        if not trained and not chosen and run not in self.in_flight:
            self.choices.append(Choice(kind, width, seed, why))


def _bracket(measured: Sequence[int], differences: Mapping[int, float]) -> tuple[int, int] | None:
    """Neighbouring widths between which memorising becomes the faster one; the widest such."""
    pairs = [
        (low, high)
        for low, high in itertools.pairwise(measured)
        if differences[low] > 0 > differences[high]
    ]
    return pairs[-1] if pairs else None


def pooled_noise(findings: Iterable[Finding], prior: Noise) -> Noise:
    """Spread over seeds, pooled over widths that have several runs, pulled towards the prior."""
    sums = {"speed": prior.weight * prior.mem**2, "grok": prior.weight * prior.gen**2}
    weights = {"speed": prior.weight, "grok": prior.weight}
    groups: dict[tuple[LocatedKind, int], list[float]] = {}
    for finding in findings:
        if finding.epoch is not None:
            groups.setdefault((finding.kind, finding.width), []).append(math.log(finding.epoch))
    for (kind, _), times in groups.items():
        if len(times) > 1:
            centre = float(np.median(times))
            # Medians are reported, which one wild seed does not move: nor does it here.
            most = 2.5 * (prior.mem if kind == "speed" else prior.gen)
            sums[kind] += sum(min(abs(t - centre), most) ** 2 for t in times)
            weights[kind] += len(times) - 1
    return Noise(
        math.sqrt(sums["speed"] / weights["speed"]),
        math.sqrt(sums["grok"] / weights["grok"]),
        prior.weight,
    )


class _OnsetPosterior:
    """P(ΔE > 0) = logistic((ln P − m) / s): a grid over m and s, updated run by run."""

    def __init__(self, grid: Grid, prior: Prior) -> None:
        sizes = [grid.log_params(width) for width in grid.params]
        place = np.linspace(min(sizes) - 0.3, max(sizes) + 0.3, 241)
        scale = prior.scale * np.exp(np.linspace(-1.2, 1.2, 5))
        self.place, self.scale = place[:, None], scale[None, :]
        centre = math.log(grid.k_mem) + prior.onset
        # Student-t tails: a cell may lie far from the others.
        log_prior = -2.0 * np.log1p(((self.place - centre) / prior.spread) ** 2 / 3)
        log_prior = log_prior - 0.5 * (np.log(self.scale / prior.scale) / 0.6) ** 2
        self.weight: NDArray[np.float64] = np.exp(log_prior - log_prior.max())
        self.weight /= self.weight.sum()

    def _likelihood(self, x: float) -> NDArray[np.float64]:
        chance: NDArray[np.float64] = special.expit((x - self.place) / self.scale)
        return LAPSE + (1 - 2 * LAPSE) * chance

    def observe(self, x: float, delayed: bool) -> None:
        chance = self._likelihood(x)
        self.weight = self.weight * (chance if delayed else 1 - chance)
        self.weight = self.weight / self.weight.sum()

    def probability(self, x: float) -> float:
        return float((self.weight * self._likelihood(x)).sum())

    def mean(self) -> float:
        return float((self.weight * self.place).sum())

    def spread(self) -> float:
        return math.sqrt(_variance(self.weight, self.place))

    def expected_gain(self, x: float) -> float:
        """By how much a run at x is expected to lower the variance of m."""
        chance = self._likelihood(x)
        after = 0.0
        for part in (self.weight * chance, self.weight * (1 - chance)):
            total = float(part.sum())
            after += total * _variance(part / total, self.place)
        return _variance(self.weight, self.place) - after


def _variance(weight: NDArray[np.float64], place: NDArray[np.float64]) -> float:
    mean = float((weight * place).sum())
    return float((weight * (place - mean) ** 2).sum())
