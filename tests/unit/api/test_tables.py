"""Answers as flat tables."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace

import pytest
from fixtures.made_up_answers import C_MODEL, SEEDS, WIDTHS, head, made_up_cell

from groktime.api.tables import (
    as_csv,
    capacity_rows,
    crossing_rows,
    delay_rows,
    flat,
    law_rows,
    onset_rows,
    regimes_rows,
    speeds_rows,
)
from groktime.service.analysis.capacity import CapacityFit
from groktime.service.analysis.laws import Collapse, LawFit
from groktime.service.analysis.survival import SpeedPoint
from groktime.service.answers.capacity import CapacityAnswer, CapacityPoint, WidthCapacity
from groktime.service.answers.crossing import OnsetAnswer
from groktime.service.answers.laws import LawAnswer, LawPoint
from groktime.service.answers.question import Thresholds


@dataclass(frozen=True)
class Inner:
    low: float | None


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    tags: tuple[str, ...]
    rows: tuple[Inner, ...]


def test_nested_fields_are_joined_by_dots_and_lists_of_records_left_out() -> None:
    outer = Outer("a", Inner(None), ("x", "y"), (Inner(1.0),))
    assert flat(outer) == {"name": "a", "inner.low": None, "tags": "x y"}


def test_text_with_commas_quotes_and_breaks_reads_back() -> None:
    rows = [{"a": 'x,"y"\nz', "b": 0.1}, {"a": "", "c": None}]
    read = list(csv.DictReader(io.StringIO(as_csv(rows).decode(), newline="")))
    assert read == [{"a": 'x,"y"\nz', "b": "0.1", "c": ""}, {"a": "", "b": "", "c": ""}]


def test_named_columns_are_there_without_a_row() -> None:
    assert as_csv([], ["a", "b"]) == b"a,b\r\n"


def test_every_row_about_a_cell_says_by_which_convention() -> None:
    cell = made_up_cell()
    onset = onset_answer()
    for rows in (
        crossing_rows(cell.crossing),
        onset_rows(onset),
        delay_rows(cell.delay),
        regimes_rows(cell.regimes),
        speeds_rows(cell.speeds),
    ):
        assert rows
        for row in rows:
            assert (row["suite"], row["prime"], row["setting.weight_decay"]) == (
                "central",
                113,
                0.1,
            )
            assert [row[f"thresholds.{n}"] for n in ("t_mem", "t_gen", "e_train", "e_val")] == [
                *(0.99, 0.99, 0.99, 0.98)
            ]
            assert (row["max_width"], row["labels"], row["analysis_version"]) == (256, "random", 1)


def onset_answer() -> OnsetAnswer:
    cell = made_up_cell()
    return OnsetAnswer(
        **head(),  # type: ignore[arg-type]
        p_onset=cell.crossing.p_onset,
        points=cell.delay.minimum,
        seeds=3,
        censored=1,
        untrained=0,
        undetermined=0,
        missing=2,
    )


def test_every_row_of_an_onset_has_the_onset() -> None:
    answer = onset_answer()
    rows = onset_rows(answer)
    assert [row["width"] for row in rows] == list(WIDTHS)
    for row in rows:
        assert row["p_onset.estimate"] == answer.p_onset.estimate
        assert (row["p_onset.low"], row["p_onset.high"]) == (
            answer.p_onset.low,
            answer.p_onset.high,
        )
        assert (row["p_onset.status"], row["seeds"], row["cell.missing"]) == ("separated", 3, 2)
    (row,) = onset_rows(replace(answer, points=()))
    assert (row["width"], row["p_onset.status"]) == (None, "separated")


def test_a_run_that_diverged_does_not_hide_how_many_did() -> None:
    speeds = made_up_cell().speeds

    def lost(point: SpeedPoint) -> SpeedPoint:
        first, *others = point.values
        return replace(point, diverged=1, values=(replace(first, diverged=True), *others))

    rows = speeds_rows(replace(speeds, t_mem=(lost(speeds.t_mem[0]),), t_gen=()))
    assert [row["diverged"] for row in rows] == [1, 1, 1]
    assert [row["run_diverged"] for row in rows] == [True, False, False]
    assert [row["seed"] for row in rows] == list(SEEDS)


def test_a_width_without_a_finished_run_has_a_row() -> None:
    speeds = made_up_cell().speeds
    unseen = replace(speeds.t_mem[0], values=(), seeds=0, missing=3)
    rows = speeds_rows(replace(speeds, t_mem=(unseen, speeds.t_mem[1])))
    assert (rows[0]["width"], rows[0]["missing"]) == (WIDTHS[0], 3)
    assert [rows[0][n] for n in ("run", "seed", "value", "last", "run_diverged")] == [None] * 5
    assert rows[0].keys() == rows[1].keys()
    assert rows[1]["c_model.source"] == "paper"


def test_rows_of_capacity_have_the_fit_and_where_c_came_from() -> None:
    width = WidthCapacity(
        width=8,
        params=3064,
        capacity=6000.0,
        low=None,
        high=None,
        flags=("sagging",),
        fitted=True,
        points=(CapacityPoint(run=1, n=400, bits=2000.0, complexity=2372.0),),
    )
    fit = CapacityFit(
        slope=2.1,
        low=2.0,
        high=2.2,
        level=0.95,
        interval="bootstrap",
        intercept=3.0,
        intercept_low=1.0,
        intercept_high=5.0,
        r_squared=0.99,
        widths=4,
    )
    answer = CapacityAnswer(
        suite="central",
        revision=7,
        setting={},
        method="robust",
        prime=59,
        vocabulary=61,
        widths=(width, replace(width, points=())),
        fit=fit,
        c_model=C_MODEL,
        p_mem=(),
        missing=1,
        analysis_version=1,
    )
    rows = capacity_rows(answer)
    assert [(row["run"], row["flags"]) for row in rows] == [(1, "sagging"), (None, "sagging")]
    assert all(row["fitted"] for row in rows)
    for row in rows:
        assert (row["fit.slope"], row["fit.high"], row["fit.widths"]) == (2.1, 2.2, 4)
        assert (row["c_model.value"], row["c_model.source"]) == (2.16, "paper")
        assert row.keys() == rows[0].keys()
    (row,) = capacity_rows(replace(answer, widths=(), fit=None))
    assert row.keys() == rows[0].keys()
    assert (row["fit.slope"], row["c_model.value"]) == (None, 2.16)


def test_rows_of_the_law_have_their_primes_fit_and_those_of_all() -> None:
    def fit(form: str, prime: int | None, a: float) -> LawFit:
        return LawFit(
            form=form,  # type: ignore[arg-type]
            prime=prime,
            a=a,
            a_low=None,
            a_high=None,
            b=1.0,
            c=None,
            r_squared=0.9,
            aic=-3.0,
            n=9,
        )

    answer = LawAnswer(
        suite="central",
        revision=7,
        setting={},
        method="robust",
        clock="online",
        units="epochs",
        level=0.9,
        thresholds=Thresholds(),
        window=(0.05, 0.5),
        c_model=C_MODEL,
        primes=(97, 101),
        points=tuple(
            LawPoint(prime=p, width=16, params=9000, fraction=0.1, value=50.0, fitted=True)
            for p in (97, 101)
        ),
        pooled=fit("exponential", None, 4.0),
        rivals=(fit("exponential", None, 4.0), fit("power", None, 0.7)),
        per_prime=(fit("exponential", 97, 4.2),),
        collapse=Collapse(
            testable=True, reason="", slope=0.1, se=0.05, p=0.04, primes=2, unreliable=True
        ),
        generalisation=None,
        analysis_version=1,
    )
    first, second = law_rows(answer)
    assert (first["per_prime.a"], second["per_prime.a"]) == (4.2, None)
    for row in (first, second):
        assert (row["window.low"], row["window.high"]) == (0.05, 0.5)
        assert (row["pooled.a"], row["rivals.power.a"], row["collapse.p"]) == (4.0, 0.7, 0.04)
        assert (row["thresholds.t_mem"], row["generalisation.beta"]) == (0.99, None)
        assert row["level"] == 0.9
        assert row["c_model.value"] == 2.16
    assert first.keys() == second.keys()


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\t=1", "\r=1"])
def test_a_text_that_a_spreadsheet_would_run_is_quoted(text: str) -> None:
    (row,) = csv.DictReader(io.StringIO(as_csv([{"a": text}]).decode(), newline=""))
    assert row["a"] == "'" + text


@pytest.mark.parametrize(
    "value", [-1.5, "-1.5", "+2e9", "-1 -2.5", "+", "-", "demo", "", None, True]
)
def test_numbers_signs_and_ordinary_texts_are_as_they_are(value: object) -> None:
    (row,) = csv.DictReader(io.StringIO(as_csv([{"b": 1, "a": value}]).decode()))
    assert row["a"] == ("" if value is None else str(value))
