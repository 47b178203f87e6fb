"""What is believed of a cell before its runs are seen, and what runs say about it.

Priors only help to choose runs; nothing that is reported rests on them. All sizes are natural
logarithms of the parameter count P unless they say dex.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from groktime.service.analysis.located import ONSET_SCALE, ONSET_SCALE_SPREAD, Noise, pooled

LocatedKind = Literal["speed", "grok"]
LOCATED_KINDS: tuple[LocatedKind, ...] = ("speed", "grok")
Run = tuple[LocatedKind, int, int]  # kind, width, seed

DEX = math.log(10)
# How cells deviate from the general prior, ln P: all of them alike, with ln K_mem, by setting, and
# each by itself.
COMMON, GROWN, OF_SETTING, OF_CELL = 0.25, 0.1, 0.2, 0.12
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
    set_aside: bool = False  # censored before its cap, and can be trained on


@dataclass(frozen=True)
class Prior:
    """Where the points lie as multiples of K_mem, before any run of the cell.

    The defaults are those of the recorded primes; finished cells of a suite sharpen them.
    """

    crossing: float = math.log(4.6)
    onset: float = math.log(2.6)
    spread: float = 0.35  # of the onset's place, ln P
    scale: float = ONSET_SCALE  # of the onset's logistic, ln P
    noise: Noise = field(default_factory=Noise)
    crossing_spread: float = 0.35  # of the crossing's place, ln P


def pooled_noise(findings: Iterable[Finding], expected: Noise) -> Noise:
    """Spread over seeds, pooled over the widths that have several runs of a kind."""
    groups: dict[LocatedKind, dict[int, list[float]]] = {"speed": {}, "grok": {}}
    for finding in findings:
        if finding.epoch is not None:
            there = groups[finding.kind].setdefault(finding.width, [])
            there.append(math.log(finding.epoch))
    return Noise(
        pooled(groups["speed"].values(), expected.mem, expected.weight),
        pooled(groups["grok"].values(), expected.gen, expected.weight),
        expected.weight,
    )


@dataclass(frozen=True)
class Learnt:
    """What another cell teaches: ln K_mem, its setting, both points with their spreads, runs."""

    log_k_mem: float
    setting: tuple[tuple[str, str], ...]
    crossing: tuple[float, float] | None  # ln P, standard deviation
    onset: tuple[float, float] | None
    findings: tuple[Finding, ...]


def prior_of(cell: Learnt, others: Sequence[Learnt], general: Prior | None = None) -> Prior:
    """The prior of a cell beside others: points lie at like multiples of K_mem.

    A cell deviates from the general prior by a part common to all cells, a part that grows with
    K_mem, a part of its setting and a part of its own; the others tell of the first three.
    """
    general = general or Prior()
    crossing, crossing_spread = _beside(cell, [(o, o.crossing) for o in others], general.crossing)
    onset, onset_spread = _beside(cell, [(o, o.onset) for o in others], general.onset)
    shares = [pooled_noise(o.findings, general.noise) for o in others if o.findings]
    noises = [general.noise, *shares]
    return Prior(
        crossing,
        onset,
        min(general.spread, onset_spread),
        general.scale,
        Noise(
            math.sqrt(sum(n.mem**2 for n in noises) / len(noises)),
            math.sqrt(sum(n.gen**2 for n in noises) / len(noises)),
            general.noise.weight,
        ),
        min(general.crossing_spread, crossing_spread),
    )


def _beside(
    cell: Learnt, others: Sequence[tuple[Learnt, tuple[float, float] | None]], general: float
) -> tuple[float, float]:
    """Mean and spread of a point's multiple of K_mem, ln, by regression on the other cells'."""
    there = [(one, *point) for one, point in others if point is not None]
    cells = [one for one, _, _ in there]

    def alike(a: Learnt, b: Learnt) -> float:
        grown = (a.log_k_mem - cell.log_k_mem) * (b.log_k_mem - cell.log_k_mem)
        return COMMON**2 + GROWN**2 * grown + OF_SETTING**2 * (a.setting == b.setting)

    own = COMMON**2 + OF_SETTING**2 + OF_CELL**2
    if not there:
        return general, math.sqrt(own)
    among = np.array([[alike(a, b) for b in cells] for a in cells])
    among += np.diag([OF_CELL**2 + spread**2 for _, _, spread in there])
    towards = np.array([alike(cell, one) for one in cells])
    seen = np.array([point - one.log_k_mem - general for one, point, _ in there])
    weights = np.linalg.solve(among, towards)
    return general + float(weights @ seen), math.sqrt(max(own - float(weights @ towards), 0.0))


class OnsetPosterior:
    """P(ΔE > 0) = logistic((ln P − m) / s): a grid over m and s, updated run by run."""

    def __init__(self, sizes: Sequence[float], log_k_mem: float, prior: Prior) -> None:
        """`sizes` are ln P of the widths there are."""
        place = np.linspace(min(sizes) - 0.3, max(sizes) + 0.3, 241)
        off = np.linspace(-2.0, 2.0, 7)[None, :]  # standard deviations of ln scale
        self.place, self.scale = place[:, None], prior.scale * np.exp(ONSET_SCALE_SPREAD * off)
        centre = log_k_mem + prior.onset
        # Student-t tails: a cell may lie far from the others.
        log_prior = -2.0 * np.log1p(((self.place - centre) / prior.spread) ** 2 / 3)
        log_prior = log_prior - 0.5 * off**2
        self.weight: NDArray[np.float64] = np.exp(log_prior - log_prior.max())
        self.weight /= self.weight.sum()

    def _likelihood(self, x: float) -> NDArray[np.float64]:
        chance: NDArray[np.float64] = special.expit((x - self.place) / self.scale)
        return LAPSE + (1 - 2 * LAPSE) * chance

    def observe(self, x: float, delayed: bool) -> None:
        chance = self._likelihood(x)
        self.weight = self.weight * (chance if delayed else 1 - chance)
        self.weight = self.weight / self.weight.sum()

    def expect(self, x: float) -> None:
        """Count a run that is not done yet as the likelier of what it may show."""
        chance = float((self.weight * self._likelihood(x)).sum())
        self.observe(x, chance >= 0.5)

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
