"""How should a speed curve be drawn between two widths? Leave each width out and predict it.

Every inner width of every cell, whichever suites trained it, is left out in turn; its Kaplan–Meier
median is interpolated between its two neighbours in several coordinates and compared with the
measured one. Reads the suites of the database that GROKTIME_HOME or GROKTIME_DATABASE_URL names
(load recordings/ first) and prints a Markdown table, or JSON.

    python benchmarks/interpolation.py [--widest 0.45] [--clock eval] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sqlalchemy import Connection, text

from groktime.db.engine import connect
from groktime.service.analysis.survival import SpeedCurve, kaplan_meier_curve
from groktime.service.answers.cell import cells, first_passages, grok_runs
from groktime.service.answers.question import NotEnough, Question, asked_runs, put

Coordinate = Callable[[np.ndarray], np.ndarray]

OF_PARAMS: dict[str, Coordinate] = {"log P": np.log, "1/P": lambda p: 1 / p}
OF_TIME: dict[str, tuple[Coordinate, Coordinate]] = {
    "log T": (np.log, np.exp),
    "1/√T": (lambda t: t**-0.5, lambda y: y**-2.0),
    "1/T": (lambda t: 1 / t, lambda y: 1 / y),
    "1/T²": (lambda t: t**-2.0, lambda y: y**-0.5),
}
KINDS = ("T_mem", "T_gen")


@dataclass(frozen=True)
class LeftOut:
    """A width with its neighbours: P and T of the three, ascending in P."""

    params: np.ndarray
    time: np.ndarray

    @property
    def gap(self) -> float:
        """log10 of the neighbours' ratio: the bracket over which the middle is predicted."""
        return float(np.log10(self.params[2] / self.params[0]))

    @property
    def change(self) -> float:
        """How many times T changes over the bracket."""
        return float(max(self.time[0], self.time[2]) / min(self.time[0], self.time[2]))

    def error(self, of_params: str, of_time: str) -> float:
        """log10(predicted / measured) of the middle one."""
        x = OF_PARAMS[of_params](self.params)
        to, back = OF_TIME[of_time]
        y = to(self.time)
        share = (x[1] - x[0]) / (x[2] - x[0])
        predicted = back(np.array(y[0] + share * (y[2] - y[0])))
        return float(np.log10(predicted / self.time[1]))


def left_out(curve: SpeedCurve) -> Iterator[LeftOut]:
    """Each reached width whose two neighbours were reached as well."""
    for k in range(1, len(curve.params) - 1):
        three = slice(k - 1, k + 2)
        if np.all(np.isfinite(curve.centre[three])):
            yield LeftOut(curve.params[three], curve.centre[three])


def curves(connection: Connection, clock: str) -> Iterator[tuple[str, SpeedCurve]]:
    """Both speed curves of every cell in the database, with the widths of all its suites."""
    names = connection.execute(text("SELECT name FROM suites ORDER BY name")).scalars().all()
    found = []
    for name in names:
        suite, convention = put(connection, Question(suite=name, clock=clock))  # type: ignore[arg-type]
        with suppress(NotEnough):  # a suite of capacity runs has no speed
            found.append(asked_runs(connection, suite, convention, None))
    runs = pd.concat(found).drop_duplicates("run_id")
    for cell in cells(runs, {}, None):
        yield "T_mem", kaplan_meier_curve(first_passages(cell, convention))
        yield "T_gen", kaplan_meier_curve(grok_runs(cell, convention).generalisation())


def summary(
    points: dict[str, list[LeftOut]], widest: float, steepest: float
) -> list[dict[str, object]]:
    """Median and root mean square of the errors, by coordinates, both curves side by side."""
    rows = []
    for of_time in OF_TIME:
        for of_params in OF_PARAMS:
            row: dict[str, object] = {"coordinates": f"{of_time} over {of_params}"}
            for kind in KINDS:
                kept = [p for p in points[kind] if p.gap <= widest and p.change >= steepest]
                errors = np.array([p.error(of_params, of_time) for p in kept])
                row |= {
                    f"{kind} widths": len(kept),
                    f"{kind} median": float(np.median(errors)) if len(errors) else None,
                    f"{kind} median size": float(np.median(np.abs(errors)))
                    if len(errors)
                    else None,
                    f"{kind} RMS": float(np.sqrt(np.mean(errors**2))) if len(errors) else None,
                }
            rows.append(row)
    return rows


def table(rows: list[dict[str, object]]) -> str:
    def cell(value: object) -> str:
        if value is None:
            return "–"
        return f"{value:+.3f}" if isinstance(value, float) else str(value)

    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(cell(r[n]) for n in names) + " |" for r in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widest", type=float, default=0.45, help="largest gap, decades of P")
    parser.add_argument("--steepest", type=float, default=1.0, help="least change of T over it")
    parser.add_argument("--clock", choices=["online", "eval"], default="online")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    points: dict[str, list[LeftOut]] = {kind: [] for kind in KINDS}
    with connect().connect() as connection:
        for kind, curve in curves(connection, options.clock):
            points[kind] += left_out(curve)
    rows = summary(points, options.widest, options.steepest)
    print(json.dumps(rows) if options.json else table(rows))


if __name__ == "__main__":
    main()
