"""Putting a question: the suite, the conventions, and the runs or the one cell it is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy import Connection

from service.answers.cell import Cell, one_cell
from service.answers.inputs import provenance
from service.answers.question import Convention, Question, put
from service.answers.reading import SuiteRecord, primes_of, read_runs
from service.answers.refusals import NotEnough, Refusal, Unknown


@dataclass(frozen=True, eq=False)
class Asked:
    """A question that found its cell."""

    suite: SuiteRecord
    convention: Convention
    cell: Cell

    def head(self) -> dict[str, Any]:
        """The fields every answer about a cell begins with."""
        return {
            "suite": self.suite.name,
            "revision": self.suite.revision,
            "prime": self.cell.prime,
            "setting": self.cell.setting,
            "method": self.convention.method,
            "clock": self.convention.clock,
            "provenance": provenance(self.suite, self.cell, self.convention),
        }


def ask(connection: Connection, question: Question) -> Asked:
    """Read the prime's runs and find the cell; says what there is when it is not found."""
    suite, convention = put(connection, question)
    prime = question.prime or _only_prime(connection, suite)
    runs = asked_runs(connection, suite, convention, prime)
    return Asked(suite, convention, one_cell(runs, question.filters, convention.labels))


def asked_runs(
    connection: Connection, suite: SuiteRecord, convention: Convention, prime: int | None
) -> pd.DataFrame:
    """The suite's runs up to the widest model asked for, of all primes or of one.

    Where none is left, the refusal names what left it out.
    """
    runs = read_runs(
        connection,
        suite,
        clock=convention.clock,
        thresholds=convention.thresholds,
        prime=prime,
    )
    if not len(runs):
        if prime is None:
            raise NotEnough("suite", suite.name, "a suite with runs", f"{suite.name} has no runs")
        there = primes_of(connection, suite.id)
        raise Unknown("prime", prime, there, f"{prime} is not in {suite.name}")
    widest = convention.max_width
    if widest is None:
        return runs
    least = int(runs["width"].min())
    if widest < least:
        why = f"{widest} leaves no width; the smallest is {least}"
        raise Refusal("max_width", widest, f"{least} or more", why)
    return runs[runs["width"] <= widest]


def _only_prime(connection: Connection, suite: SuiteRecord) -> int:
    """The suite's prime where it has just one; else the question must name it."""
    there = primes_of(connection, suite.id)
    if len(there) != 1:
        raise Refusal("prime", None, there, f"is missing; {suite.name} has {len(there)} primes")
    return there[0]
