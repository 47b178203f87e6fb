"""Does memorisation time follow one law of the capacity fraction at every prime?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import Connection

from service.analysis import ANALYSIS_VERSION
from service.analysis.law import (
    Collapse,
    GeneralisationLaw,
    LawFit,
    generalisation_law,
    law_points,
    memorisation_law,
)
from service.analysis.speed_curve import SpeedCurve, kaplan_meier_curve, mean_over_reached
from service.answers.asking import asked_runs
from service.answers.bits import bits_per_parameter
from service.answers.cell import Cell, cells, refuse_several
from service.answers.inputs import first_passages, grok_runs
from service.answers.making import (
    BitsPerParameter,
    Clock,
    Method,
    Setting,
    Thresholds,
    Units,
    finite,
)
from service.answers.question import Question, put
from service.answers.refusals import NotEnough


@dataclass(frozen=True, kw_only=True)
class LawPoint:
    """One width of one prime: its capacity fraction and its centre over seeds."""

    prime: int
    width: int
    params: int
    fraction: Annotated[float, Field(description="f = K_mem / (C_model P)")]
    value: Annotated[float, Field(description="T_mem in the answer's units")]
    fitted: Annotated[bool, Field(description="f lies inside the window of the fit")]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One form fitted to log T_mem: b·e^{af}, b·f^a or b·e^{a f^c}."""

    form: Literal["exponential", "power", "stretched"]
    prime: Annotated[int | None, Field(description="null: all primes pooled")]
    a: float
    a_low: float | None
    a_high: float | None
    b: float
    c: float | None
    r_squared: float | None
    aic: float | None
    n: int


@dataclass(frozen=True, kw_only=True)
class CollapseTest:
    """Whether T_mem still depends on P once f is fixed: decades per decade of P."""

    testable: bool
    reason: str
    slope: float | None
    se: float | None
    p: float | None
    primes: int
    unreliable: bool


@dataclass(frozen=True, kw_only=True)
class GeneralisationFit:
    """T_gen ≈ A·p^c·P^(−β), for forecasts."""

    log_a: float
    c: float
    c_low: Annotated[float | None, Field(description="null: fewer than five primes")]
    c_high: float | None
    beta: float
    beta_low: float | None
    beta_high: float | None
    r_squared: float | None
    n: int
    primes: Annotated[int, Field(description="primes among the n widths")]


@dataclass(frozen=True, kw_only=True)
class LawAnswer:
    """T_mem against f over the primes of one setting, with rivals and the collapse test."""

    suite: str
    revision: int
    setting: Setting
    method: Method
    clock: Clock
    units: Units
    level: Annotated[float, Field(description="of every interval")]
    thresholds: Thresholds
    window: Annotated[tuple[float, float], Field(description="f that the fits use")]
    c_model: BitsPerParameter
    primes: tuple[int, ...]
    points: tuple[LawPoint, ...]
    pooled: Fit | None
    rivals: Annotated[tuple[Fit, ...], Field(description="pooled, smallest AIC first")]
    per_prime: tuple[Fit, ...]
    collapse: CollapseTest
    generalisation: GeneralisationFit | None
    analysis_version: int


def law(
    connection: Connection, question: Question, window: tuple[float, float] | None = None
) -> LawAnswer:
    """The laws of the setting asked about, over all its primes or the one named."""
    suite, convention = put(connection, question)
    runs = asked_runs(connection, suite, convention, question.prime)
    found = list(cells(runs, question.filters, convention.labels))
    refuse_several(found, one_per_prime=True)
    c_model = bits_per_parameter(
        connection, suite, found[0].values, convention.method, convention.level
    )
    centre = kaplan_meier_curve if convention.method == "robust" else mean_over_reached
    in_steps = convention.units == "steps"
    mem: dict[int, SpeedCurve] = {}
    gen: dict[int, SpeedCurve] = {}
    for cell in found:
        passages = first_passages(cell, convention)
        generalised = grok_runs(cell, convention).generalisation()
        mem[cell.prime] = centre(passages.in_steps() if in_steps else passages)
        gen[cell.prime] = centre(generalised.in_steps() if in_steps else generalised)
    k_mem = {cell.prime: cell.k_mem for cell in found}
    points = law_points(mem, k_mem, c_model.value)
    if not len(points.time):
        raise NotEnough("suite", suite.name, "finished speed runs", "no speed run reached T_mem")
    chosen = window or convention.fraction_window
    laws = memorisation_law(points, chosen, level=convention.level)
    generalised_law = generalisation_law(
        law_points(gen, k_mem, c_model.value), level=convention.level
    )
    return LawAnswer(
        suite=suite.name,
        revision=suite.revision,
        setting=found[0].setting,
        method=convention.method,
        clock=convention.clock,
        units=convention.units,
        level=convention.level,
        thresholds=convention.thresholds,
        window=chosen,
        c_model=c_model,
        primes=tuple(cell.prime for cell in found),
        points=_points(found, mem, c_model.value, chosen),
        pooled=None if laws.pooled is None else _fit(laws.pooled, None),
        rivals=tuple(_fit(fit, None) for fit in laws.rivals),
        per_prime=tuple(_fit(fit, prime) for prime, fit in sorted(laws.per_prime.items())),
        collapse=_collapse(laws.collapse),
        generalisation=_generalisation(generalised_law),
        analysis_version=ANALYSIS_VERSION,
    )


def _points(
    found: list[Cell], mem: dict[int, SpeedCurve], c_model: float, window: tuple[float, float]
) -> tuple[LawPoint, ...]:
    points = []
    for cell in found:
        curve = mem[cell.prime]
        for width, params, value in zip(curve.width, curve.params, curve.centre, strict=True):
            reached = finite(float(value))
            if reached is None:
                continue
            fraction = cell.k_mem / (c_model * float(params))
            points.append(
                LawPoint(
                    prime=cell.prime,
                    width=int(width),
                    params=int(params),
                    fraction=fraction,
                    value=reached,
                    fitted=window[0] <= fraction <= window[1],
                )
            )
    return tuple(points)


def _fit(fit: LawFit, prime: int | None) -> Fit:
    return Fit(
        form=fit.form,
        prime=prime,
        a=fit.a,
        a_low=finite(fit.a_low),
        a_high=finite(fit.a_high),
        b=fit.b,
        c=finite(fit.c),
        r_squared=finite(fit.r2),
        aic=finite(fit.aic),
        n=fit.n,
    )


def _collapse(found: Collapse) -> CollapseTest:
    return CollapseTest(
        testable=found.testable,
        reason=found.reason,
        slope=finite(found.slope),
        se=finite(found.se),
        p=finite(found.p),
        primes=found.clusters,
        unreliable=found.unreliable,
    )


def _generalisation(found: GeneralisationLaw | None) -> GeneralisationFit | None:
    if found is None:
        return None
    return GeneralisationFit(
        log_a=found.log_a,
        c=found.c,
        c_low=None if found.c_reach is None else finite(found.c - found.c_reach),
        c_high=None if found.c_reach is None else finite(found.c + found.c_reach),
        beta=found.beta,
        beta_low=finite(found.beta - found.beta_reach),
        beta_high=finite(found.beta + found.beta_reach),
        r_squared=finite(found.r2),
        n=found.n,
        primes=len(found.primes),
    )
