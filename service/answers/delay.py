"""How long generalisation comes after fitting the training set, seed by seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from service.analysis.delay import delay_curve, delays
from service.answers.asking import Asked, ask
from service.answers.inputs import closed, grok_runs
from service.answers.making import Answer, finite
from service.answers.onset import OnsetPoint, delay_points
from service.answers.question import Question


@dataclass(frozen=True, kw_only=True)
class DelayPoint:
    """One run's delay ΔE; `censored`: a lower bound, validation had not got there."""

    run: Annotated[int, Field(description="id for /runs/{id}")]
    width: int
    params: int
    seed: int
    e_train: Annotated[float | None, Field(description="epoch; null: never")]
    e_val: Annotated[float | None, Field(description="epoch; null: never")]
    delay: float
    censored: bool


@dataclass(frozen=True, kw_only=True)
class DelayAnswer(Answer):
    """Every run's delay and the seed minimum at each width (the paper's figure 1)."""

    points: tuple[DelayPoint, ...]
    minimum: tuple[OnsetPoint, ...]
    seeds: int
    censored: int
    untrained: int
    undetermined: int
    missing: int


def delay(connection: Connection, question: Question) -> DelayAnswer:
    """The delay of every run of the cell asked about."""
    return delay_of(ask(connection, question))


def delay_of(asked: Asked) -> DelayAnswer:
    """The answer for a cell whose runs have been read."""
    grok = grok_runs(asked.cell, asked.convention)
    found = delays(grok, method=asked.convention.method)
    rows, _ = closed(asked.cell.grok)
    run = {
        (int(w), int(s)): (int(i), float(t), float(v))
        for w, s, i, t, v in zip(
            rows["width"], rows["seed"], rows["run_id"], grok.e_train, grok.e_val, strict=True
        )
    }
    points = []
    for i in range(len(found.delay)):
        width, seed = int(found.width[i]), int(found.seed[i])
        number, e_train, e_val = run[width, seed]
        points.append(
            DelayPoint(
                run=number,
                width=width,
                params=int(found.params[i]),
                seed=seed,
                e_train=finite(e_train),
                e_val=finite(e_val),
                delay=float(found.delay[i]),
                censored=bool(found.censored[i]),
            )
        )
    return DelayAnswer(
        **asked.head(),
        points=tuple(points),
        minimum=delay_points(delay_curve(found.params, found.delay, found.width)),
        seeds=len(grok.seeds),
        censored=int(found.censored.sum()),
        untrained=found.n_untrained,
        undetermined=found.n_undetermined,
        missing=grok.n_missing,
    )
