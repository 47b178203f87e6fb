"""How many bits models of a setting can memorise, and how many a parameter holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from service.answers.making import BitsPerParameter, Method, Setting


@dataclass(frozen=True, kw_only=True)
class CapacityPoint:
    """Total memorisation at one dataset size; `complexity` is n·log2 V, the most there is."""

    run: int
    n: int
    bits: float
    complexity: float


@dataclass(frozen=True, kw_only=True)
class WidthCapacity:
    """M_T(n) of one width and its plateau."""

    width: int
    params: int
    capacity: Annotated[float | None, Field(description="bits")]
    low: float | None
    high: float | None
    flags: Annotated[tuple[str, ...], Field(description="not_saturated, sagging")]
    points: tuple[CapacityPoint, ...]


@dataclass(frozen=True, kw_only=True)
class CapacityFit:
    """Cap = intercept + C·P by least squares."""

    slope: Annotated[float, Field(description="C_model, bits per parameter")]
    low: float | None
    high: float | None
    level: float
    intercept: float
    r_squared: float | None
    widths: int


@dataclass(frozen=True, kw_only=True)
class PrimeThreshold:
    """The capacity threshold of one prime of the suite at one dataset size."""

    prime: int
    n_train: int
    k_mem: float
    p_mem: float


@dataclass(frozen=True, kw_only=True)
class CapacityAnswer:
    """Capacity curves of one setting, the fit of C_model, and P_mem of the suite's primes."""

    suite: str
    revision: int
    setting: Setting
    method: Method
    prime: Annotated[int | None, Field(description="prime of the random-label runs; null: none")]
    vocabulary: int | None
    widths: tuple[WidthCapacity, ...]
    fit: Annotated[CapacityFit | None, Field(description="null: too few widths")]
    c_model: BitsPerParameter
    p_mem: tuple[PrimeThreshold, ...]
    missing: int
    analysis_version: int
