"""Locating a cell: which run to train next to place its crossing and its onset.

The model here only chooses. What is reported are the estimators of service/analysis on the runs
trained, so a choice is judged by what it does to their variance: below the precision asked for,
the search ends. All sizes are natural logarithms of the parameter count P unless they say dex.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from groktime.service.analysis.located import Side, root_spread, slope_at
from groktime.service.sweep.priors import (
    DEX,
    LOCATED_KINDS,
    Finding,
    LocatedKind,
    OnsetPosterior,
    Prior,
    Run,
    pooled_noise,
)

Wanted = Literal["crossing", "onset"]
# bracketed: between two widths, one of which never memorised; undecided: neither speed was reached
# where the point would be.
Status = Literal[
    "searching",
    "placed",
    "bracketed",
    "undecided",
    "no crossing in range",
    "no onset in range",
    "out of seeds",
]

SCAN = 0.12 * DEX  # between the widths of the first look
NARROW = 0.07 * DEX  # a bracket this narrow is interpolated without harm
LEAST_WEIGHT = 0.3  # of a side in the interpolation, for its seeds to be asked for by rule
LEAST_SEEDS = 2  # at each side of the crossing, for a noise that is seen and not assumed
END_SEEDS = 3  # that agree at the end of the range, for an onset to lie beyond it
SIGN_SEEDS = 4  # at most, at a width whose sign contradicts its neighbours'
FACTOR = 1.96  # half of a 95 % interval in standard deviations
SIGN_ONLY = 3.0  # this many times past T_gen a speed run is slower, whatever its T_mem
AHEAD = 2  # onset runs asked for at once; more would be chosen half blind


@dataclass(frozen=True)
class Choice:
    """A run worth training next, and why."""

    kind: LocatedKind
    width: int
    seed: int
    why: str

    def __str__(self) -> str:
        return f"{self.kind} d={self.width} seed {self.seed} ({self.why})"


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

    def __str__(self) -> str:
        """`41,200 (± 0.020 dex, 36,832–46,044, placed)`, as far as it is known."""
        if self.params is None:
            return self.status
        about = [] if self.half_width is None else [f"± {self.half_width:.3f} dex"]
        if self.bracket:
            about.append(f"{self.bracket[0]:,.0f}–{self.bracket[1]:,.0f}")
        return f"{self.params:,.0f} ({', '.join([*about, self.status])})"


@dataclass(frozen=True)
class Progress:
    """How far a cell is located, and the runs worth training next, best first."""

    crossing: Point | None
    onset: Point | None
    choices: tuple[Choice, ...]
    waits: bool = False  # for runs in flight

    @property
    def is_done(self) -> bool:
        return not self.choices and not self.waits


def locate(
    grid: Grid,
    findings: Sequence[Finding],
    *,
    precision: float = 0.03,
    wanted: Collection[Wanted] = ("crossing", "onset"),
    prior: Prior | None = None,
    in_flight: Collection[Run] = (),
    lost: Collection[Run] = (),
) -> Progress:
    """What is known of the cell and which runs to train next.

    `precision` is the standard deviation asked for, in dex. Runs in flight are not asked for again
    and count as if they were done; lost ones cannot be trained, and other seeds take their place.
    """
    prior = prior or Prior()
    flying = frozenset(in_flight)
    search = _Search(grid, findings, precision * DEX, prior, flying, frozenset(lost))
    crossing = search.crossing() if "crossing" in wanted else None
    onset = search.onset() if "onset" in wanted else None
    return Progress(crossing, onset, tuple(search.choices), bool(flying))


def sign_epochs(findings: Sequence[Finding], bracket: Collection[int] = ()) -> dict[int, float]:
    """By width, the epoch from which a speed run there is only a sign: it may be set aside.

    That is far past the last of the clocks of every grok run there, and only where a larger width
    has the same sign: the root is interpolated beside that one. Never at the widths of `bracket`.
    """
    ends: dict[int, list[Finding]] = {}
    for finding in findings:
        if finding.kind == "grok":
            ends.setdefault(finding.width, []).append(finding)
    slower = {
        f.width
        for f in findings
        if f.kind == "speed"
        and f.width in ends
        and all(g.epoch is not None and g.epoch < (f.epoch or math.inf) for g in ends[f.width])
    }
    largest = max(slower, default=0)
    return {
        width: SIGN_ONLY * max(g.last_epoch for g in grok)
        for width, grok in ends.items()
        if width < largest and width not in bracket and all(g.epoch is not None for g in grok)
    }


class _Search:
    """One look at one cell; `choices` are collected in the order they were found worth it."""

    def __init__(
        self,
        grid: Grid,
        findings: Sequence[Finding],
        precision: float,
        prior: Prior,
        in_flight: frozenset[Run],
        lost: frozenset[Run],
    ) -> None:
        self.grid, self.findings, self.precision = grid, findings, precision
        self.prior, self.in_flight, self.lost = prior, in_flight, lost
        self.widths = sorted(grid.params)
        # Without the widths at which all runs of a kind are lost.
        self.paired = [
            width
            for width in self.widths
            if all(any((k, width, s) not in lost for s in grid.seeds) for k in LOCATED_KINDS)
        ]
        self.choices: list[Choice] = []
        self.trained: set[Run] = {(f.kind, f.width, f.seed) for f in findings}
        self.noise = pooled_noise(findings, prior.noise)

    # The crossing.

    def crossing(self) -> Point:
        """Scan, bisect, then seeds; each step asks for what it lacks and waits for it."""
        if not self.paired:
            return Point("undecided")
        differences = self._differences()
        measured = [w for w in sorted(differences) if not math.isnan(differences[w])]
        unresolved = [w for w in sorted(differences) if math.isnan(differences[w])]
        if not measured:
            return self._begin(unresolved)
        changes = [
            (low, high)
            for low, high in itertools.pairwise(measured)
            if (differences[low] > 0) != (differences[high] > 0)
        ]
        if not changes:
            return self._widen(measured, unresolved, faster=differences[measured[0]] <= 0)
        low, high = _main_change(changes, starts_slower=differences[measured[0]] > 0)
        point = self._interpolated(low, high, differences)
        if len(changes) > 1 and self._settle_signs(changes, measured, differences):
            return point
        between = [w for w in self.paired if low < w < high]
        x0, x1 = self.grid.log_params(low), self.grid.log_params(high)
        if x1 - x0 > NARROW and between:
            # Towards the root, but never so near an end that the other side stays wide.
            quarter = (x1 - x0) / 4
            root = (x0 + x1) / 2 if point.params is None else math.log(point.params)
            inner = min(max(root, x0 + quarter), x1 - quarter)
            self._ask_pair(self.grid.nearest(inner, between), "halves the bracket")
            return point
        if self._ask_whole(low, high):
            return point
        self._confirm(low, high, measured)
        return self._with_seeds(low, high, differences, point)

    def _ask_whole(self, low: int, high: int) -> bool:
        """Whether a run beside the crossing was set aside: now its T_mem is wanted."""
        aside = [f for f in self.findings if f.set_aside and f.width in (low, high)]
        for finding in aside:
            run = (finding.kind, finding.width, finding.seed)
            if run not in self.in_flight:
                self.choices.append(Choice(*run, "set aside, but beside the crossing"))
        return bool(aside)

    def _interpolated(self, low: int, high: int, differences: Mapping[int, float]) -> Point:
        """The crossing between two widths as it is reported: 1/T linear in log P.

        Beside a T_mem that was not reached it is only known to lie between them.
        """
        x0, x1 = self.grid.log_params(low), self.grid.log_params(high)
        sides = (float(self.grid.params[low]), float(self.grid.params[high]))
        if math.isinf(differences[low]) or math.isinf(differences[high]):
            return Point("searching", math.exp((x0 + x1) / 2), (x1 - x0) / 2 / DEX, sides)
        d0, d1 = (
            math.exp(-self._known(w, "grok")) - math.exp(-self._known(w, "speed"))
            for w in (low, high)
        )
        return Point("searching", math.exp(x0 + (x1 - x0) * d0 / (d0 - d1)), None, sides)

    def _known(self, width: int, kind: LocatedKind) -> float:
        found = self._median(kind, width)
        assert found is not None, "both kinds were trained there"
        return found

    def _with_seeds(
        self, low: int, high: int, differences: Mapping[int, float], point: Point
    ) -> Point:
        """The bracket is narrow: more seeds beside it until the root is as precise as asked."""
        x0, x1 = self.grid.log_params(low), self.grid.log_params(high)
        waits = any(kind == "speed" or width in (low, high) for kind, width, _ in self.in_flight)
        if point.half_width is not None:  # T_mem was not reached beside it: seeds teach nothing
            enough = (x1 - x0) / math.sqrt(12) <= self.precision
            ended: Status = "placed" if enough else "bracketed"
            return replace(point, status="searching" if self.choices or waits else ended)
        assert point.params is not None
        root = math.log(point.params)
        by_size = {self.grid.log_params(w): d for w, d in differences.items()}
        slope = slope_at(by_size, x0, x1, self.noise)
        self._seeds_until_precise(low, high, root, slope, self._counts((low, high)))
        spread = self._spread(low, high, root, slope, self._counts((low, high), flying=False))
        point = replace(point, half_width=FACTOR * spread / DEX)
        if self.choices or waits:
            return point
        return replace(point, status="placed" if spread <= self.precision else "out of seeds")

    def _begin(self, unresolved: Sequence[int]) -> Point:
        """The first look: where K_mem says the crossing is, then a step to both sides.

        Where neither speed was reached, networks are too small: on to larger ones.
        """
        if unresolved:
            return self._step_from(unresolved[-1], SCAN, "neither speed was reached so far")
        centre = math.log(self.grid.k_mem) + self.prior.crossing
        step = min(SCAN, max(NARROW, 2 * self.prior.crossing_spread))
        for offset in (0.0, step, -step):
            self._ask_pair(
                self.grid.nearest(centre + offset, self.paired), "first look around the prior"
            )
        return Point("searching")

    def _step_from(self, edge: int, step: float, why: str) -> Point:
        """A pair one step further out; at the end of the range nothing is left to ask for."""
        beyond = [w for w in self.paired if (w > edge if step > 0 else w < edge)]
        if not beyond:
            return Point("searching" if self.in_flight else "undecided")
        self._ask_pair(self.grid.nearest(self.grid.log_params(edge) + step, beyond), why)
        return Point("searching")

    def _widen(self, measured: Sequence[int], unresolved: Sequence[int], *, faster: bool) -> Point:
        """All widths agree: go on to where the other sign should be, to the end of the range."""
        if faster:
            below = [w for w in unresolved if w < measured[0]]
            if below:  # the other sign can only be between them
                return self._between_undecided(below[-1], measured[0])
            edge, step, end = measured[0], -SCAN, self.paired[0]
            why = "memorising is faster at every width so far"
        else:
            edge, step, end = max(*measured, *unresolved, 0), SCAN, self.paired[-1]
            why = "memorising is slower at every width so far"
        if edge != end or end in unresolved:
            return self._step_from(edge, step, why)
        for seed in range(LEAST_SEEDS):
            for kind in LOCATED_KINDS:
                if self._counts((end,))[kind, end] <= seed:
                    self._ask_seed(kind, end, "decides the end of the range")
        other = self.paired[-1] if faster else self.paired[0]
        if other not in (*measured, *unresolved):
            self._ask_pair(other, "decides the other end of the range")
        if self.choices or self.in_flight:
            return Point("searching")
        return Point("no crossing in range")

    def _between_undecided(self, low: int, high: int) -> Point:
        """Between a width too small for either speed and one at which memorising is faster."""
        sides = (float(self.grid.params[low]), float(self.grid.params[high]))
        between = [w for w in self.paired if low < w < high]
        if not between:
            return Point("searching" if self.in_flight else "undecided", None, None, sides)
        middle = (self.grid.log_params(low) + self.grid.log_params(high)) / 2
        self._ask_pair(self.grid.nearest(middle, between), "neither speed was reached below")
        return Point("searching", None, None, sides)

    def _settle_signs(
        self,
        changes: Sequence[tuple[int, int]],
        measured: Sequence[int],
        differences: Mapping[int, float],
    ) -> bool:
        """Several changes of sign are noise or re-entrance: seeds where a sign is in doubt tell."""
        stretch = [w for w in measured if changes[0][0] <= w <= changes[-1][1]]
        counts, doubtful = self._counts(stretch), False
        for width in stretch:
            variance = sum(sigma**2 / max(1, counts[kind, width]) for kind, sigma in self._sigmas())
            if abs(differences[width]) > 2 * math.sqrt(variance):
                continue
            for kind in LOCATED_KINDS:
                if counts[kind, width] < min(SIGN_SEEDS, len(self.grid.seeds)):
                    self._ask_seed(kind, width, "its sign contradicts its neighbours'")
                    doubtful = True
        waits = any(width in stretch for _, width, _ in self.in_flight)
        return doubtful or waits

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
        pending: dict[tuple[LocatedKind, int], int],
    ) -> None:
        """Ask for the seed that lowers the variance most per second, again and again."""
        share = self._share(low, high, root)
        weights = {low: 1 - share, high: share}
        for _ in range(8 * len(self.grid.seeds)):
            short = [
                (kind, width)
                for (kind, width), count in pending.items()
                if weights[width] > LEAST_WEIGHT
                and count < LEAST_SEEDS + self._doubtful(kind, width)
                and self._free_seed(kind, width) is not None
            ]
            spread = self._spread(low, high, root, slope, pending)
            if not short and spread <= self.precision:
                break
            gains: list[tuple[float, LocatedKind, int]] = []
            for kind, width in short or pending:
                if self._free_seed(kind, width) is None:
                    continue
                more = {**pending, (kind, width): pending[kind, width] + 1}
                gain = spread**2 - self._spread(low, high, root, slope, more) ** 2
                gains.append((gain / self.grid.seconds(kind, width), kind, width))
            if not gains:
                break
            _, kind, width = max(gains)
            self._ask_seed(kind, width, "another seed beside the crossing")
            pending[kind, width] += 1

    def _share(self, low: int, high: int, root: float) -> float:
        """How far the root lies from the lower towards the upper width."""
        x0, x1 = self.grid.log_params(low), self.grid.log_params(high)
        return (root - x0) / (x1 - x0)

    def _spread(
        self,
        low: int,
        high: int,
        root: float,
        slope: float,
        counts: Mapping[tuple[LocatedKind, int], int],
    ) -> float:
        """Standard deviation of the interpolated root: delta method with pooled seed noise."""
        gap = self.grid.log_params(high) - self.grid.log_params(low)
        share = self._share(low, high, root)
        sides = [
            Side(weight, counts["speed", width], counts["grok", width])
            for width, weight in ((low, 1 - share), (high, share))
        ]
        return root_spread(sides, slope, gap, self.noise)

    def _sigmas(self) -> tuple[tuple[LocatedKind, float], ...]:
        return ("speed", self.noise.mem), ("grok", self.noise.gen)

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

    def _counts(
        self, widths: Iterable[int], *, flying: bool = True
    ) -> dict[tuple[LocatedKind, int], int]:
        """Runs trained, or also in flight, at the widths, by kind."""
        there = self.trained | (self.in_flight if flying else frozenset())
        return {
            (kind, width): sum(k == kind and w == width for k, w, _ in there)
            for width in widths
            for kind in LOCATED_KINDS
        }

    # The onset.

    def onset(self) -> Point:
        """P50 of P(ΔE > 0): the width that lowers its posterior variance most per second."""
        posterior = OnsetPosterior(
            [self.grid.log_params(w) for w in self.widths], math.log(self.grid.k_mem), self.prior
        )
        grok = [f for f in self.findings if f.kind == "grok"]
        for finding in grok:
            # Training that never got there says that the network is too small to grok.
            posterior.observe(self.grid.log_params(finding.width), bool(finding.delayed))
        point = self._onset_point(posterior, grok)
        waiting = [width for kind, width, _ in self.in_flight if kind == "grok"]
        for width in (*waiting, *(c.width for c in self.choices if c.kind == "grok")):
            posterior.expect(self.grid.log_params(width))
        before = len(self.choices)
        if self._is_beyond(grok):
            return point if waiting else replace(point, status="no onset in range")
        while self._is_vague(posterior) and len(self.choices) - before < AHEAD:
            best = self._onset_width(posterior, grok)
            if best is None:
                break
            self._ask_seed("grok", best, "narrows the onset")
            posterior.expect(self.grid.log_params(best))
        if (
            len(self.choices) == before
            and not waiting
            and len({bool(f.delayed) for f in grok}) == 1
        ):
            self._ask_seed("grok", self._end_beyond(grok), "decides the end of the range")
        if len(self.choices) > before or waiting:
            return point
        return replace(point, status="out of seeds" if self._is_vague(posterior) else "placed")

    def _end_beyond(self, grok: Sequence[Finding]) -> int:
        """The end of the range beyond which an onset would lie if all runs were like the last."""
        return self.widths[0] if grok[-1].delayed else self.widths[-1]

    def _is_beyond(self, grok: Sequence[Finding]) -> bool:
        """Whether all runs agree, up to the end of the range beyond which the onset lies."""
        if len({bool(f.delayed) for f in grok}) != 1:
            return False
        end = self._end_beyond(grok)
        return self._counts((end,), flying=False)["grok", end] >= min(
            END_SEEDS, len(self.grid.seeds)
        )

    def _is_vague(self, posterior: OnsetPosterior) -> bool:
        return posterior.spread() > self.precision

    def _onset_point(self, posterior: OnsetPosterior, grok: Sequence[Finding]) -> Point:
        """The onset as far as it is known, between the largest prompt and smallest delayed."""
        sizes = self.grid.params
        delayed = [sizes[f.width] for f in grok if f.delayed]
        prompt = [sizes[f.width] for f in grok if not f.delayed]
        sides = (
            float(max(prompt, default=sizes[self.widths[0]])),
            float(min(delayed, default=sizes[self.widths[-1]])),
        )
        half_width = FACTOR * posterior.spread() / DEX
        return Point("searching", math.exp(posterior.mean()), half_width, sides)

    def _onset_width(self, posterior: OnsetPosterior, grok: Sequence[Finding]) -> int | None:
        """The width whose next seed lowers the variance of the onset most per second.

        First among widths whose yes or no is not known beforehand: near the onset, and large
        enough for training to get there. Where their seeds are used up, among all.
        """
        free = [w for w in self.widths if self._free_seed("grok", w) is not None]
        trains = {f.width for f in grok if f.delayed is not None}
        never = max((f.width for f in grok if f.width not in trains), default=0)
        mean, reach = posterior.mean(), max(2.5 * posterior.spread(), SCAN)
        near = [w for w in free if w > never and abs(self.grid.log_params(w) - mean) <= reach]
        gains = {
            w: posterior.expected_gain(self.grid.log_params(w)) / self.grid.seconds("grok", w)
            for w in near or free
        }
        best = max(gains, key=lambda w: gains[w], default=None)
        return None if best is None or gains[best] <= 0 else best

    # Asking.

    def _ask_pair(self, width: int, why: str) -> None:
        """The first seed of both kinds at a width: a pair shares its split and its weights."""
        for seed in self.grid.seeds:
            if not any((kind, width, seed) in self.lost for kind in LOCATED_KINDS):
                for kind in LOCATED_KINDS:
                    self._ask((kind, width, seed), why)
                return
        for kind in LOCATED_KINDS:
            self._ask_seed(kind, width, why)

    def _ask_seed(self, kind: LocatedKind, width: int, why: str) -> None:
        seed = self._free_seed(kind, width)
        if seed is not None:
            self._ask((kind, width, seed), why)

    def _free_seed(self, kind: LocatedKind, width: int) -> int | None:
        """The first seed that was neither trained nor asked for; None: all were."""
        asked = {(c.kind, c.width, c.seed) for c in self.choices}
        taken = self.trained | self.in_flight | self.lost | asked
        return next((s for s in self.grid.seeds if (kind, width, s) not in taken), None)

    def _ask(self, run: Run, why: str) -> None:
        asked = any((c.kind, c.width, c.seed) == run for c in self.choices)
        if not asked and run not in self.trained | self.in_flight:
            self.choices.append(Choice(*run, why))


def _main_change(changes: Sequence[tuple[int, int]], *, starts_slower: bool) -> tuple[int, int]:
    """The change of sign that is reported: the middle one of an odd number, of an even number the
    last after which memorising is the faster one."""
    count = len(changes)
    if count % 2:
        return changes[(count - 1) // 2]
    return changes[count - 2 if starts_slower else count - 1]
