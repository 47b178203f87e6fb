"""A cell's runs as the arrays the analysis starts from, and how they came about."""

from __future__ import annotations

import pandas as pd

from service.analysis import ANALYSIS_VERSION
from service.analysis.inputs import FirstPassages, GrokRuns
from service.answers.cell import Cell
from service.answers.making import ByKind, Provenance
from service.answers.question import Convention
from service.answers.reading import SuiteRecord
from service.answers.refusals import Refusal


def diverged(runs: pd.DataFrame) -> pd.Series[bool]:
    """Failed by a non-finite loss: counts as never reached, and is shown apart."""
    return (runs["state"] == "failed") & (runs["reason"] == "diverged")


def closed(runs: pd.DataFrame) -> tuple[pd.DataFrame, dict[int, int]]:
    """Runs that count (done, or diverged) and by width the number that are not there yet."""
    counts = (runs["state"] == "done") | diverged(runs)
    missing = runs.loc[~counts, "width"].value_counts()
    return runs[counts], {int(str(w)): int(n) for w, n in missing.items()}


def first_passages(cell: Cell, convention: Convention) -> FirstPassages:
    """The cell's memorisation: first passages of its speed runs."""
    _check_threshold("t_mem", convention.thresholds.t_mem, cell.speed, "stop_train")
    _check_clock(convention, cell.speed)
    runs, missing = closed(cell.speed)
    return FirstPassages(
        width=runs["width"].to_numpy(),
        params=runs["params"].to_numpy(),
        seed=runs["seed"].to_numpy(),
        epoch=runs["t_mem"].to_numpy(dtype=float),
        last_epoch=runs["last_epoch"].to_numpy(dtype=float),
        diverged=diverged(runs).to_numpy(),
        missing=missing,
        clock=convention.clock,
        threshold=convention.thresholds.t_mem,
        steps_per_epoch=cell.steps_per_epoch,
    )


def grok_runs(cell: Cell, convention: Convention) -> GrokRuns:
    """The cell's runs on the structured task with their training and validation passages."""
    thresholds = convention.thresholds
    _check_threshold("e_train", thresholds.e_train, cell.grok, "stop_train")
    _check_threshold("e_val", thresholds.e_val, cell.grok, "stop_val")
    _check_threshold("t_gen", thresholds.t_gen, cell.grok, "stop_val")
    _check_clock(convention, cell.grok)
    runs, missing = closed(cell.grok)
    return GrokRuns(
        width=runs["width"].to_numpy(),
        params=runs["params"].to_numpy(),
        seed=runs["seed"].to_numpy(),
        e_train=runs["e_train"].to_numpy(dtype=float),
        e_val=runs["e_val"].to_numpy(dtype=float),
        t_gen=runs["t_gen"].to_numpy(dtype=float),
        last_epoch=runs["last_epoch"].to_numpy(dtype=float),
        diverged=diverged(runs).to_numpy(),
        missing=missing,
        clock=convention.clock,
        train_threshold=thresholds.e_train,
        val_threshold=thresholds.e_val,
        gen_threshold=thresholds.t_gen,
        steps_per_epoch=cell.steps_per_epoch,
    )


def _check_threshold(name: str, value: float, runs: pd.DataFrame, column: str) -> None:
    """Runs that stopped at an accuracy know nothing of what would have come after it."""
    stops = runs.loc[runs["stop_rule"] == "threshold", column].dropna()
    if len(stops) and value > float(stops.min()):
        limit = float(stops.min())
        raise Refusal(
            name, value, f"at most {limit:g}", f"{value:g} is above {limit:g}, where runs stopped"
        )


def _check_clock(convention: Convention, runs: pd.DataFrame) -> None:
    if convention.clock == "eval" and not runs["eval_train"].all():
        raise Refusal("clock", "eval", ["online"], "these runs did not record the eval clock")


def provenance(suite: SuiteRecord, cell: Cell, convention: Convention) -> Provenance:
    """How an answer about the cell came about."""
    both = pd.concat([cell.speed, cell.grok])
    return Provenance(
        analysis_version=ANALYSIS_VERSION,
        suite_hash=suite.hash,
        frozen=suite.frozen,
        thresholds=convention.thresholds,
        max_width=convention.max_width,
        labels=cell.labels,
        runs=ByKind(speed=len(cell.speed), grok=len(cell.grok)),
        inherited=ByKind(
            speed=int(cell.speed["inherited"].sum()), grok=int(cell.grok["inherited"].sum())
        ),
        engines=tuple(sorted({str(e) for e in both["engine"].dropna()})),
        devices=tuple(sorted({str(d) for d in both["device"].dropna()})),
    )
