"""Synthetic cells whose truth is known: power-law speeds with seed effects and a cap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from groktime.service.analysis.inputs import FirstPassages, GrokRuns

W15 = (20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 200, 256)


def params_of(width: np.ndarray) -> np.ndarray:
    """P at p = 113, two layers."""
    return 2 * 115 * width + 2 * (16 * width**2 + 2 * width) + width


@dataclass
class Cells:
    """Draws cells in which T_mem and T_gen cross at `crossing` parameters."""

    crossing: float = 150_000.0
    epochs: float = 250.0
    mem_slope: float = 1.0
    gen_slope: float = 0.4
    mem_noise: float = 0.04
    gen_noise: float = 0.15
    cap: float = 5000.0
    seeds: int = 10
    widths: tuple[int, ...] = W15
    shared: float = 0.5  # share of the noise variance that a seed has in common at all widths
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def passages(self, slope: float, noise: float) -> FirstPassages:
        width = np.repeat(self.widths, self.seeds)
        seed = np.tile(np.arange(42, 42 + self.seeds), len(self.widths))
        params = params_of(width)
        own = self.rng.normal(size=len(width)) * np.sqrt(1 - self.shared)
        common = self.rng.normal(size=self.seeds)[seed - 42] * np.sqrt(self.shared)
        time = self.epochs * (params / self.crossing) ** -slope * np.exp(noise * (own + common))
        time = np.maximum(1.0, np.round(time))
        reached = time <= self.cap
        return FirstPassages(
            width, params, seed, np.where(reached, time, np.nan), np.minimum(time, self.cap)
        )

    def pair(self) -> tuple[FirstPassages, FirstPassages]:
        return self.passages(self.mem_slope, self.mem_noise), self.passages(
            self.gen_slope, self.gen_noise
        )

    def grok(self, onset: float = 100_000.0, noise: float = 0.3) -> GrokRuns:
        """Grok runs whose training clock falls behind validation above `onset` parameters."""
        gen = self.passages(self.gen_slope, self.gen_noise)
        lead = np.log(gen.params / onset) + noise * self.rng.normal(size=len(gen))
        e_train = np.maximum(1.0, np.round(gen.last_epoch * np.exp(-0.3 * lead)))
        last = np.maximum(gen.last_epoch, e_train)
        return GrokRuns(gen.width, gen.params, gen.seed, e_train, gen.epoch, gen.epoch, last)


@pytest.fixture
def cells() -> Callable[..., Cells]:
    return Cells
